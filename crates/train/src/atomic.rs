//! Small files that are replaced as a whole.

use crate::Result;
use std::path::Path;

/// Replaces the content of `path`, see [`trained::replace_file`].
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    Ok(trained::replace_file(path, content)?)
}
