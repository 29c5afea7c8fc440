//! Columns of text.

/// Rows of cells, each column as wide as its widest cell. The first columns are words, all after them numbers.
pub struct Table {
    words: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table whose first `words` columns are words.
    pub fn new(words: usize, head: &[&str]) -> Table {
        Table { words, rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                line += &match column < self.words {
                    true => format!("{gap}{cell:width$}"),
                    false => format!("{gap}{cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_and_numbers_end_at_one_place() {
        let mut table = Table::new(1, &["kernel", "bytes"]);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["longest".into(), "1000000".into()]);
        assert_eq!(table.to_string(), "kernel     bytes\na              1\nlongest  1000000\n");
    }
}
