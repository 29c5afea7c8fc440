//! Conversion of errors of the crate `trained`: known variants have an equivalent in this crate.

use crate::Error;
use crate::config::unknown_network;

impl From<trained::Error> for Error {
    fn from(error: trained::Error) -> Self {
        use trained::Error as Lower;
        match error {
            Lower::Option { option, value, accepted } => Error::Option { option, value, accepted },
            Lower::UnknownNetwork { name } => unknown_network("--network", &name),
            Lower::Run { path, reason } => Error::Run { path, reason },
            Lower::Data(error) => error.into(),
            Lower::Augment(error) => error.into(),
            Lower::Network(error) => error.into(),
            Lower::File(error) => error.into(),
            Lower::Interchange(error) => error.into(),
            Lower::Tensor(error) => error.into(),
            other => Error::Trained(other),
        }
    }
}
