"""Models: the codecs of questions and answers, one for each protocol."""
