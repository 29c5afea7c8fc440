//! What files hold of the options: their compact form.

use crate::{Ema, Error, Optimizer, ParamGroup, Result, Schedule};

macro_rules! stored_as_text {
    ($($options:ty),+) => {
        $(impl TryFrom<String> for $options {
            type Error = Error;

            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }

        impl From<$options> for String {
            fn from(options: $options) -> Self {
                options.to_string()
            }
        })+
    };
}

stored_as_text!(Ema, Optimizer, ParamGroup, Schedule);
