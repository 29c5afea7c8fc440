//! Options declared once: for the command line, for files, and for the documentation.
//!
//! The macro [`options!`] declares a struct, its defaults, and an [`Opt`] for each field: its key, flag,
//! [`Kind`] of value and help. A [`Table`] puts such a struct under a key of a configuration. [`set`] and
//! [`set_text`] change one option by its key. Their errors name the key, the value, and the accepted values.
#![forbid(unsafe_code)]

// The macro names this crate.
#[cfg(test)]
extern crate self as towers_options;

mod kind;
mod message;
mod spelling;
mod table;

pub use kind::{Kind, Refused, path};
pub use message::Message;
pub use spelling::{hint, nearest};
pub use table::{Error, Opt, Table, check, find, parse_table, set, set_text, unknown};

#[doc(hidden)]
pub use serde;

/// Declares a struct whose fields are options.
///
/// Each field has a documentation comment, which is also its help; a type and a default; a [`Kind`]; and
/// optionally a flag with the name of its value, and `with` more about it: a method of [`Opt`], such as `with short('g')`. A heading
/// in brackets comes before each group. Fields after
/// a `+` are separate tables; `as` gives a table another key.
///
/// The struct implements `Default`, `Serialize` and `Deserialize`, and has a constant `OPTIONS`. For a struct of
/// another crate, `const NAME { ... }` declares that constant alone: without types and defaults.
///
/// The macro finds this crate by the name `towers_options`, since serde takes no other path. Under another name it does not
/// compile.
#[macro_export]
macro_rules! options {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                [$heading:literal]
                $(
                    $(#[doc = $doc:literal])+
                    $field:ident: $type:ty = $default:expr, $kind:expr
                    $(, $flag:literal)? $(, with $more:ident($($of:expr),*))* $(, via $via:literal)?;
                )*
            )*
            $( + $( $(#[doc = $table_doc:literal])+ $table:ident: $table_type:ty $(, as $key:literal)?; )+ )?
        }
    ) => {
        $(#[$meta])*
        #[derive($crate::serde::Serialize, $crate::serde::Deserialize)]
        #[serde(crate = "towers_options::serde", default)]
        $vis struct $name {
            $($(
                $(#[doc = $doc])+
                $(#[serde(with = $via)])?
                pub $field: $type,
            )*)*
            $($(
                $(#[doc = $table_doc])+
                $(#[serde(rename = $key)])?
                pub $table: $table_type,
            )+)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($($field: $default,)*)* $($($table: Default::default(),)+)? }
            }
        }

        impl $name {
            $crate::options! {
                /// The options, in the order of the fields.
                pub const OPTIONS {
                    $( [$heading] $( $(#[doc = $doc])+ $field: $kind $(, $flag)? $(, with $more($($of),*))*; )* )*
                }
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis const $name:ident {
            $(
                [$heading:literal]
                $(
                    $(#[doc = $doc:literal])+
                    $field:ident: $kind:expr $(, $flag:literal)? $(, with $more:ident($($of:expr),*))*;
                )*
            )*
        }
    ) => {
        $(#[$meta])*
        $vis const $name: &'static [$crate::Opt] = &[$($(
            $crate::Opt::new(stringify!($field), $kind, concat!($($doc),+)).under($heading)$(.with_flag($flag))?$(.$more($($of),*))*,
        )*)*];
    };
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
