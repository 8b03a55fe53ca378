"""The parts of the page, one in each module: each builds its elements once and then patches them."""
