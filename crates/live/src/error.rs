use std::net::SocketAddr;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A view that can't begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text that is no address for the page.
    #[error("the address of the page is {given}, but {reason}")]
    Address {
        /// The text.
        given: String,
        /// Why it is none.
        reason: String,
    },
    /// An address at which the page can't be.
    #[error("the address of the page is {at}, but {reason}")]
    Listen {
        /// The address.
        at: SocketAddr,
        /// Why not.
        reason: String,
    },
    /// The system has no random numbers for the token in the page's address.
    #[error("there is no random token for the page: {0}")]
    Token(String),
    /// The terminal can't be drawn on.
    #[error("the terminal can't be drawn on: {0}")]
    Terminal(#[source] std::io::Error),
}
