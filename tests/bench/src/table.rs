// SPDX-License-Identifier: Apache-2.0
//! A Markdown table whose columns are also aligned as plain text: words to the left, numbers to the right.

/// A table with one heading.
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self {
            heading: heading.map(str::to_owned).to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds rows of as many cells as the heading has.
    pub fn extend(&mut self, rows: impl IntoIterator<Item = Vec<String>>) {
        self.rows.extend(rows);
    }

    /// The table's lines.
    pub fn render(&self) -> String {
        let columns: Vec<Column> = (0..self.heading.len()).map(|index| self.column(index)).collect();
        let rule: Vec<String> = columns.iter().map(Column::rule).collect();
        let lines = [&self.heading, &rule].into_iter().chain(&self.rows);
        lines.map(|cells| line(&columns, cells)).collect()
    }

    fn column(&self, index: usize) -> Column {
        let cells = || self.rows.iter().filter_map(|row| row.get(index));
        let heading = self.heading.get(index).map_or(0, String::len);
        Column {
            width: cells().map(String::len).chain([heading, 3]).max().unwrap_or(3),
            numeric: cells().all(|cell| cell == "-" || cell.parse::<f64>().is_ok()),
        }
    }
}

struct Column {
    width: usize,
    numeric: bool,
}

impl Column {
    fn rule(&self) -> String {
        let dashes = "-".repeat(self.width - usize::from(self.numeric));
        if self.numeric { dashes + ":" } else { dashes }
    }

    fn pad(&self, cell: &str) -> String {
        let width = self.width;
        if self.numeric {
            format!("{cell:>width$}")
        } else {
            format!("{cell:<width$}")
        }
    }
}

fn line(columns: &[Column], cells: &[String]) -> String {
    let padded: Vec<String> = columns
        .iter()
        .zip(cells)
        .map(|(column, cell)| column.pad(cell))
        .collect();
    format!("| {} |\n", padded.join(" | "))
}
