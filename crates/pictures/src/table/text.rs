//! The text of a table: lines of fields, as spreadsheets and pandas write them.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use csv::{ReaderBuilder, StringRecord, Trim};
use towers_files::open_regular;

use crate::error::{Error, Result};

/// The most bytes of a table. That of ImageNet's 1.3 million pictures has 50 MB.
const MOST: u64 = 256 << 20;

/// Separators of fields, the likeliest first.
const SEPARATORS: [u8; 3] = *b",;\t";

/// A table in memory.
pub(crate) struct Text {
    path: PathBuf,
    text: String,
    /// The separator of its fields.
    pub(crate) separator: u8,
}

impl Text {
    /// The table in a file.
    pub(crate) fn read(path: &Path) -> Result<Text> {
        let (file, _) = open_regular(path)?;
        let mut bytes = Vec::new();
        file.take(MOST + 1).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
        let refuse = |reason: &str| Error::table(path, reason);
        if bytes.len() as u64 > MOST {
            return Err(refuse("it has more than 256 MiB, too much for a table of labels"));
        }
        let not_utf8 = |_| refuse("it is not UTF-8; save it as CSV in UTF-8");
        let mut text = String::from_utf8(bytes).map_err(not_utf8)?;
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        Ok(Text { path: path.to_owned(), separator: separator(&text), text })
    }

    /// The fields of the first two lines with any.
    pub(crate) fn first_lines(&self) -> Result<[Option<Vec<String>>; 2]> {
        let mut lines = [None, None];
        self.each(|_, fields| {
            let second = usize::from(lines[0].is_some());
            lines[second] = Some(fields.iter().map(str::to_owned).collect());
            Ok(second == 0)
        })?;
        Ok(lines)
    }

    /// Shows lines with their numbers until `see` returns false, all of as many fields. Those of empty fields are skipped.
    pub(crate) fn each(&self, mut see: impl FnMut(u64, &StringRecord) -> Result<bool>) -> Result<()> {
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).delimiter(self.separator).trim(Trim::All);
        let mut reader = builder.from_reader(self.text.as_bytes());
        let (mut fields, mut columns) = (StringRecord::new(), None);
        while reader.read_record(&mut fields).map_err(|error| self.refused(error.to_string()))? {
            let line = fields.position().map_or(0, |at| self.line(at));
            if fields.iter().all(str::is_empty) {
                continue;
            }
            let (own, first) = (fields.len(), *columns.get_or_insert(fields.len()));
            if own != first {
                let s = if own == 1 { "" } else { "s" };
                let quote = "; a field with a separator in it needs quotes";
                return Err(
                    self.refused(format!("line {line} has {own} field{s}, the first line {first}{quote}"))
                );
            }
            if !see(line, &fields)? {
                break;
            }
        }
        Ok(())
    }

    /// The line of a record, whose position is before the empty lines that the reader has skipped.
    fn line(&self, at: &csv::Position) -> u64 {
        let rest = self.text.as_bytes().get(at.byte() as usize..).unwrap_or_default();
        let empty = rest.iter().take_while(|byte| b"\r\n".contains(byte)).filter(|byte| **byte == b'\n');
        at.line() + empty.count() as u64
    }

    /// The table's file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An error about the table.
    pub(crate) fn refused(&self, reason: impl Into<String>) -> Error {
        Error::table(&self.path, reason)
    }
}

/// The separator that the first line has most often outside of quotes.
fn separator(text: &str) -> u8 {
    let (mut counts, mut quoted) = ([0; SEPARATORS.len()], false);
    for byte in text.trim_start().bytes() {
        match byte {
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'\n' | b'\r' => break,
            _ => SEPARATORS
                .iter()
                .zip(&mut counts)
                .filter(|(known, _)| **known == byte)
                .for_each(|(_, n)| *n += 1),
        }
    }
    let most = counts.iter().max().copied().unwrap_or(0);
    SEPARATORS.into_iter().zip(counts).find(|(_, count)| *count == most).map_or(b',', |(known, _)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_those_of_the_first_line() {
        for (text, is) in [
            ("id,label\n1;2;3", b','),
            ("id;label\r\n1,2,3", b';'),
            ("\"a;b;c\",label\n", b','),
            ("id\tlabel", b'\t'),
            ("image;cat, black;dog\n", b';'),
            ("id", b','),
            ("", b','),
        ] {
            assert_eq!(separator(text), is, "{text}");
        }
    }
}
