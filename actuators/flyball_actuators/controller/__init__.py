"""What a cluster's API server shows becomes inventories and workload specifications: ``flyball controller``."""
