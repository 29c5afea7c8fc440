//! Neural-network layers with explicit forward and backward passes, and the Network they form.
