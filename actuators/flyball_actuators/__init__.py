"""The guard, the drivers and the service that carries decisions out."""
