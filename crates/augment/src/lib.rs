//! Image augmentation with the semantics of Keras' ImageDataGenerator, reproducible draw by draw.
