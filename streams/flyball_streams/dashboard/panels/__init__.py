"""Parts of the page, one per module: each builds its elements once and then patches them."""
