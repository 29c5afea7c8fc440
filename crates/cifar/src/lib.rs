//! CIFAR-10 and CIFAR-100: find, fetch, verify and read; image folders; an embedded synthetic data set.
