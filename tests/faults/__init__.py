"""What has gone wrong in other pools, one module for each kind of trouble."""
