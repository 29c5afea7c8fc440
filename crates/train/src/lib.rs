//! The training loop of towers: recipes, observers, checkpoints, evaluation.
