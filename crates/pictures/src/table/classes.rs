//! The classes of a table, and which of them each of its labels means.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::error::Result;
use crate::listing::Picture;
use crate::splits::Kind;
use crate::table::columns::{Columns, Labels};
use crate::table::index::Index;
use crate::table::rows::{Label, Row, Rows};
use crate::table::text::Text;

/// The default separator of the classes of a picture.
const SEPARATOR: &str = "|";

/// The most numbers that multi-hot rows may take: one for each picture and class.
const MOST_FLAGS: u64 = 4 << 30;

/// The classes of a table.
pub(crate) struct Classes {
    pub(crate) names: Vec<String>,
    /// Whether a picture has any number of them.
    pub(crate) multi_label: bool,
    /// The classes of each label, sorted.
    sets: Vec<Arc<[u16]>>,
    /// A label that looks like a list, and what seems to separate it.
    pub(crate) lists: Option<(String, char)>,
}

impl Classes {
    /// Those of a table, whose lists are separated by `separator`. Each needs a picture to train on, but not with `whole`, nor where
    /// a picture has any number of classes.
    pub(crate) fn of(
        text: &Text,
        columns: &Columns,
        table: &Rows,
        separator: Option<&str>,
        whole: bool,
    ) -> Result<Classes> {
        let classes = match &columns.labels {
            Labels::Names(_) => Classes::of_texts(text, table, separator)?,
            Labels::Flags(flags) => {
                let names: Vec<&str> = flags.iter().map(|(_, name)| name.as_str()).collect();
                Classes::of_flags(text, table, &names)?
            }
        };
        let count = classes.names.len();
        let least = if whole || classes.multi_label { 1 } else { 2 };
        let s = if count == 1 { "" } else { "es" };
        if count < least {
            return Err(text.refused(format!("it has {count} class{s}, but {least} or more are needed")));
        }
        if classes.multi_label && (table.rows.len() as u64).saturating_mul(count as u64) > MOST_FLAGS {
            let (rows, most) = (table.rows.len(), MOST_FLAGS);
            return Err(text.refused(format!("{rows} pictures times {count} classes are more than {most}")));
        }
        if !whole && !classes.multi_label {
            classes.check_training(text, table)?;
        }
        Ok(classes)
    }

    fn of_texts(text: &Text, table: &Rows, separator: Option<&str>) -> Result<Classes> {
        let labels: Vec<&str> = table.labels.iter().map(Label::text).collect();
        let listed = labels.iter().any(|label| label.contains(SEPARATOR));
        let separator = separator.filter(|given| !given.is_empty()).or(listed.then_some(SEPARATOR));
        let parts = |label: &'_ str| -> Vec<String> {
            let parts = separator.map_or(vec![label], |separator| label.split(separator).collect());
            parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        if let Some(empty) = labels.iter().position(|label| label.is_empty()).filter(|_| separator.is_none())
        {
            let mut rows = table.rows.iter().filter(|row| row.label as usize == empty);
            let (first, more) = (rows.next().map_or(0, |row| row.line), rows.count());
            let lines = if more == 0 { "a line has".to_owned() } else { format!("{} lines have", more + 1) };
            return Err(
                text.refused(format!("{lines} no class, as line {first}; name one, or leave them out"))
            );
        }
        let names: BTreeSet<String> = labels.iter().flat_map(|label| parts(label)).collect();
        let names = sorted(names.into_iter().collect());
        check_count(text, names.len())?;
        let places = numbered(&names);
        let set = |label: &&str| {
            let set: BTreeSet<u16> = parts(label).iter().map(|name| places[name.as_str()]).collect();
            set.into_iter().collect()
        };
        let sets = labels.iter().map(set).collect();
        let lists = if separator.is_none() { looks_listed(&labels) } else { None };
        Ok(Classes { sets, multi_label: separator.is_some(), lists, names })
    }

    fn of_flags(text: &Text, table: &Rows, columns: &[&str]) -> Result<Classes> {
        check_count(text, columns.len())?;
        let names = sorted(columns.iter().map(|name| (*name).to_owned()).collect());
        if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
            return Err(text.refused(format!("two columns are called `{}`", two[0])));
        }
        let places = numbered(&names);
        let set = |label: &Label| -> Arc<[u16]> {
            let set: BTreeSet<u16> =
                label.flags().iter().map(|&column| places[columns[usize::from(column)]]).collect();
            set.into_iter().collect()
        };
        let sets: Vec<Arc<[u16]>> = table.labels.iter().map(set).collect();
        let multi_label = sets.iter().any(|set| set.len() != 1);
        Ok(Classes { names, multi_label, sets, lists: None })
    }

    /// Refuses a class without a picture to train on.
    fn check_training(&self, text: &Text, table: &Rows) -> Result<()> {
        let mut trained = vec![false; self.names.len()];
        for row in table.rows.iter().filter(|row| row.kind == Kind::Train) {
            trained[usize::from(self.first(row))] = true;
        }
        let Some(class) = trained.iter().position(|trained| !trained) else { return Ok(()) };
        let row = table.rows.iter().find(|row| usize::from(self.first(row)) == class);
        let of = row.map_or(String::new(), |row| format!(" of line {}", row.line));
        Err(text.refused(format!("the class `{}`{of} has no picture to train on", self.names[class])))
    }

    /// The classes of a row.
    pub(crate) fn set(&self, row: &Row) -> &Arc<[u16]> {
        &self.sets[row.label as usize]
    }

    /// The first class of a row.
    fn first(&self, row: &Row) -> u16 {
        self.set(row).first().copied().unwrap_or(0)
    }

    /// The classes of a row in words.
    pub(crate) fn told(&self, row: &Row) -> String {
        let names: Vec<&str> =
            self.set(row).iter().map(|&class| self.names[usize::from(class)].as_str()).collect();
        if names.is_empty() { "no class".to_owned() } else { format!("`{}`", names.join(SEPARATOR)) }
    }

    /// The picture of a row.
    pub(crate) fn picture(&self, row: &Row, index: &Index) -> Picture {
        let classes = self.multi_label.then(|| self.set(row).clone());
        Picture { path: index.path(row.picture).to_owned(), label: self.first(row), classes }
    }
}

/// Refuses more classes than labels can number.
fn check_count(text: &Text, classes: usize) -> Result<()> {
    match classes > usize::from(u16::MAX) {
        true => Err(text.refused(format!("it has {classes} classes, more than {}", u16::MAX))),
        false => Ok(()),
    }
}

/// The label of each class.
fn numbered(names: &[String]) -> HashMap<&str, u16> {
    names.iter().map(String::as_str).zip(0..).collect()
}

/// Sorts names, as numbers if all are whole numbers.
fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    let numbers: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
    if numbers.is_some() {
        names.sort_by_key(|name| name.parse::<i64>().unwrap_or_default());
    }
    names
}

/// A label that looks like a list with its separator, if at least half of the labels have one, and they are made of fewer parts than
/// there are labels.
fn looks_listed(labels: &[&str]) -> Option<(String, char)> {
    let listed = |separator: char| {
        let mut with = labels.iter().filter(|label| label.contains(separator));
        let (first, more) = (with.next()?, with.count());
        let parts: BTreeSet<&str> =
            labels.iter().flat_map(|label| label.split(separator)).map(str::trim).collect();
        let is_list = 2 * (more + 1) >= labels.len() && parts.len() < labels.len();
        is_list.then(|| ((*first).to_owned(), separator))
    };
    [',', ';', ' '].into_iter().find_map(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_sorted_by_name_or_as_numbers() {
        let sorted = |names: &[&str]| sorted(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(sorted(&["10", "9", "-1", "0"]), ["-1", "0", "9", "10"]);
        assert_eq!(sorted(&["10", "9", "a"]), ["10", "9", "a"]);
    }

    #[test]
    fn lists_are_known_by_parts_that_come_again() {
        let planet = ["clear primary", "clear water", "haze primary", "haze water", "haze"];
        assert_eq!(looks_listed(&planet), Some(("clear primary".into(), ' ')));
        assert_eq!(looks_listed(&["a, b", "b, c", "a, c", "b,a,c"]), Some(("a, b".into(), ',')));
        assert_eq!(looks_listed(&["golden retriever", "labrador retriever", "poodle", "chow"]), None);
        assert_eq!(looks_listed(&["cat", "dog"]), None);
    }
}
