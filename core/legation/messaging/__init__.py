"""Answering the messages of channels: taken in, worked on, sent out, each step stored."""
