//! The networks of the towers recipes: keras_cnn, minigooglenet.
