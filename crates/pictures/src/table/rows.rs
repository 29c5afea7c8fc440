//! The rows of a table: the picture, the classes and the split of each.

use std::collections::HashMap;

use crate::error::Result;
use crate::splits::Kind;
use crate::table::columns::{Columns, Labels, flag};
use crate::table::index::{Index, NotFound};
use crate::table::text::Text;

/// A row of a table.
pub(crate) struct Row {
    /// The picture's place in the index.
    pub(crate) picture: u32,
    /// The place of its classes in [`Rows::labels`].
    pub(crate) label: u32,
    pub(crate) kind: Kind,
    pub(crate) line: u64,
}

/// The classes of a picture as a table gives them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Label {
    /// A text.
    Text(String),
    /// The columns with a 1, as places in [`Labels::Flags`].
    Flags(Vec<u16>),
}

impl Label {
    /// The text; none of columns.
    pub(crate) fn text(&self) -> &str {
        if let Label::Text(text) = self { text } else { "" }
    }

    /// The columns; none of a text.
    pub(crate) fn flags(&self) -> &[u16] {
        if let Label::Flags(flags) = self { flags } else { &[] }
    }
}

/// All rows of a table.
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    /// The different labels, in the order of the rows.
    pub(crate) labels: Vec<Label>,
}

/// Some lines with one fault.
#[derive(Default)]
struct Faults {
    count: usize,
    first: Option<(u64, String)>,
}

impl Faults {
    fn add(&mut self, line: u64, name: &str) {
        self.count += 1;
        self.first.get_or_insert_with(|| (line, name.to_owned()));
    }
}

impl Rows {
    /// Those of a table about the pictures of an index.
    pub(crate) fn read(text: &Text, columns: &Columns, index: &Index) -> Result<Rows> {
        let (mut rows, mut labels) = (Vec::new(), Vec::new());
        let mut known: HashMap<Label, u32> = HashMap::new();
        let (mut missing, mut total, mut header) = (Faults::default(), 0_usize, columns.has_header);
        // Whether a class that a picture lacks is 0 or -1.
        let mut none = [false; 2];
        text.each(|line, fields| {
            if std::mem::take(&mut header) {
                return Ok(true);
            }
            let name = &fields[columns.path];
            let refuse = |reason: String| Err(text.refused(format!("line {line}: {reason}")));
            total += 1;
            let picture = match index.find(name) {
                Ok(picture) => picture,
                Err(NotFound::Missing) => {
                    missing.add(line, name);
                    return Ok(true);
                }
                Err(NotFound::Several([one, two])) => {
                    let remedy = "name the folder that has one of them, or write path and ending";
                    return refuse(format!("`{name}` may be `{one}` or `{two}`; {remedy}"));
                }
                Err(NotFound::Outside(why)) => {
                    let root = index.root().display();
                    return refuse(format!("`{name}` is refused: {why}; it must be a path within {root}"));
                }
            };
            if index.leads_out(picture) {
                return refuse(format!(
                    "`{name}` is a link out of the folder of the pictures; copy the picture there"
                ));
            }
            let label = match &columns.labels {
                Labels::Names(column) => Label::Text(fields[*column].to_owned()),
                Labels::Flags(flags) => {
                    let mut set = Vec::new();
                    for (class, (column, name)) in flags.iter().enumerate() {
                        let field = &fields[*column];
                        none[usize::from(field.starts_with('-'))] |= flag(field) == Some(false);
                        match flag(field) {
                            Some(true) => set.push(class as u16),
                            Some(false) => {}
                            None => {
                                return refuse(format!(
                                    "`{field}` in the column `{name}` is neither 0 nor 1"
                                ));
                            }
                        }
                    }
                    Label::Flags(set)
                }
            };
            let kind = match &columns.split {
                None => Kind::Train,
                Some(split) => match split.kind(&fields[split.column]) {
                    Some(kind) => kind,
                    None => {
                        let (field, name) = (&fields[split.column], &split.name);
                        let accepted = split.accepted();
                        return refuse(format!("`{field}` in the column `{name}` is none of {accepted}"));
                    }
                },
            };
            let label = *known.entry(label).or_insert_with_key(|label| {
                labels.push(label.clone());
                labels.len() as u32 - 1
            });
            rows.push(Row { picture, label, kind, line });
            Ok(true)
        })?;
        if none == [true, true] {
            let reason = "its columns of classes have both 0 and -1; write 0 where a picture lacks a class";
            return Err(text.refused(reason));
        }
        if let Some((line, name)) = missing.first {
            let (count, why) = (missing.count, index.why_not(&name));
            let (are, s) = if count == 1 { ("is", "") } else { ("are", "s") };
            let root = index.root().display();
            let reason =
                format!("{count} picture{s} of {total} {are} not in {root}, as `{name}` in line {line}{why}");
            return Err(text.refused(reason));
        }
        Ok(Rows { rows, labels })
    }
}
