"""Models: codecs of what is asked and answered, whoever runs the model."""
