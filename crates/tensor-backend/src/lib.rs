//! The vocabulary of the towers tensor backends: shapes, op specifications, the Backend trait, errors.
