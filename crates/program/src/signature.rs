//! The operands and results of an op by name: one table declares them for programs, devices and tests.

use crate::Kind;

/// The kinds of an op's operands and results. The table of its file in `ops` declares them.
pub trait Signature {
    /// The kinds of the operands, in their order.
    fn operands(&self) -> &'static [Kind];

    /// The kinds of the results, in their order: arenas that a program may write.
    fn results(&self) -> &'static [Kind];
}

/// Declares the operands of ops, and the results where they are more than an output `y`. Names behind a semicolon are optional.
///
/// It makes a struct of names for each, in the modules `operands` and `results`, the op's [`Signature`], and its method `bind`.
macro_rules! signatures {
    ($($op:ident { $($list:tt)* } $(-> { $($results:tt)* })?)+) => {
        /// The operands of the ops of this file, by name.
        pub mod operands {
            $(crate::signature::names! { $op, "operands", $($list)* })+
        }
        /// The results of those ops that have more than one, by name.
        pub mod results {
            $($(crate::signature::names! { $op, "results", $($results)* })?)+
        }
        $(crate::signature::signature! { $op $($($results)*)? })+
    };
}

/// The [`Signature`] of an op, and its binding. Results follow the name, if they are declared.
macro_rules! signature {
    ($op:ident) => {
        crate::signature::signature! { @impl $op, crate::ops::results::Output }
    };
    ($op:ident $($results:tt)+) => {
        crate::signature::signature! { @impl $op, results::$op }
    };
    (@impl $op:ident, $results:path) => {
        impl crate::Signature for $op {
            fn operands(&self) -> &'static [crate::Kind] {
                operands::$op::<()>::KINDS
            }

            fn results(&self) -> &'static [crate::Kind] {
                use $results as Results;
                Results::<()>::KINDS
            }
        }

        impl $op {
            /// The operands by name, of a list in their order.
            ///
            /// # Errors
            /// If their number is wrong.
            pub fn operands_of<T: Copy>(&self, list: &[T]) -> crate::Result<operands::$op<T>> {
                operands::$op::of(crate::Rule::name(self), list)
            }
        }

        const _: () = {
            use $results as Results;

            impl $op {
                /// The operands and the results of a step by name.
                ///
                /// # Errors
                /// If their number is wrong. That of a placed program was checked.
                #[allow(clippy::type_complexity, reason = "a pair of lists of names")]
                pub fn bind(
                    &self,
                    step: &crate::Step,
                ) -> crate::Result<(operands::$op<crate::TensorId>, Results<crate::TensorId>)> {
                    let results = Results::of(crate::Rule::name(self), &step.results)?;
                    Ok((self.operands_of(&step.operands)?, results))
                }
            }
        };
    };
}

/// A struct with a name for each operand or result.
macro_rules! names {
    ($op:ident, $what:literal, $($name:ident: $kind:ident $says:literal),* $(,)?
        $(; $($optional:ident: $its_kind:ident $its_says:literal),+ $(,)?)?) => {
        #[doc = concat!("The ", $what, " of `", stringify!($op), "`, by name.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $op<T = crate::TensorId> {
            $(#[doc = concat!("As errors say: ", $says, ".")] pub $name: T,)*
            $($(#[doc = concat!("As errors say: ", $its_says, ". It may be left out.")] pub $optional: Option<T>,)+)?
        }

        impl<T> $op<T> {
            /// Their kinds, in their order.
            pub const KINDS: &'static [crate::Kind] = &[
                $(crate::Kind::$kind($says),)*
                $($(crate::Kind::$its_kind($its_says).optional(),)+)?
            ];
        }

        impl<T: Copy> $op<T> {
            /// Those of a list in their order, for the op of this name.
            ///
            /// # Errors
            /// If their number is wrong.
            pub fn of(op: &'static str, list: &[T]) -> crate::Result<Self> {
                let (what, expected, got) = (concat!("the list of ", $what), Self::KINDS.len(), list.len());
                let wrong = || crate::Error::Length { op, what, expected, got };
                let mut rest = list.iter().copied();
                let all = $op {
                    $($name: rest.next().ok_or_else(wrong)?,)*
                    $($($optional: rest.next(),)+)?
                };
                if rest.next().is_some() { Err(wrong()) } else { Ok(all) }
            }
        }

        /// All that are there, in their order.
        impl<T> From<$op<T>> for Vec<T> {
            fn from(given: $op<T>) -> Vec<T> {
                let all = [$(Some(given.$name),)* $($(given.$optional,)+)?];
                all.into_iter().flatten().collect()
            }
        }
    };
}

pub(crate) use {names, signature, signatures};
