//! What files hold of the options: their compact form.

use crate::{Ema, Optimizer, ParamGroup, Sam, Schedule};
use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

macro_rules! stored_as_text {
    ($($options:ty),+) => {
        $(impl Serialize for $options {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $options {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        })+
    };
}

stored_as_text!(Ema, Optimizer, ParamGroup, Sam, Schedule);
