//! Optimizers over flat parameter arenas and learning-rate schedules as pure functions of the step.
