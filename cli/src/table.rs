// SPDX-License-Identifier: Apache-2.0
//! Tables of text. Each column is as wide as its widest cell. Columns are two spaces apart, and lines have no trailing
//! spaces. Cells and wrapped words are escaped for a terminal.

use crate::terminal;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this first row.
    pub fn new(titles: &[&str]) -> Self {
        Self {
            rows: vec![titles.iter().map(|title| (*title).to_owned()).collect()],
        }
    }

    /// Adds a row. An empty cell is shown as `-`.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) -> &mut Self {
        let shown = |cell: String| {
            if cell.is_empty() {
                "-".to_owned()
            } else {
                terminal::line(&cell)
            }
        };
        self.rows.push(cells.into_iter().map(shown).collect());
        self
    }

    /// Whether the table has only its titles.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The text, a line per row.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            format!("{}\n", line.trim_end())
        };
        self.rows.iter().map(line).collect()
    }
}

/// Wraps `text` at `width` columns where words allow it, and indents the lines.
pub fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace().map(terminal::line) {
        match lines.last_mut() {
            Some(last) if last.is_empty() => last.push_str(&word),
            Some(last) if indent + last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

#[cfg(test)]
mod tests;
