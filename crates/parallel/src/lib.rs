//! Data parallelism: batch slicing, replicas on threads, collectives with a fixed summing order.
