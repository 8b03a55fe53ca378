"""``flyball incidents``: what is wrong, and what people answer."""
