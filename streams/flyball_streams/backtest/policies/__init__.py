"""Groups of policies, and their inputs from the demand."""
