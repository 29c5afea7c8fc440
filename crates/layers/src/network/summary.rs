use super::arena::specs;
use super::graph::{Graph, Value};
use crate::Role;
use core::fmt;
use towers_program::Shape;

/// A graph's layers with their shapes and parameters. Prints as Keras' `summary()`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// The graph's name.
    pub name: String,
    /// A row a layer, the input first.
    pub rows: Vec<SummaryRow>,
    /// Trainable parameters.
    pub trainable: usize,
    /// Frozen parameters and running averages.
    pub non_trainable: usize,
}

/// One layer of a [`Summary`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SummaryRow {
    /// The layer's name.
    pub name: String,
    /// The layer's type.
    pub kind: String,
    /// The output's shape: `(None, 32, 32, 96)`.
    pub shape: String,
    /// Parameters, frozen ones and running averages included.
    pub params: usize,
    /// The layers whose outputs it reads.
    pub inputs: Vec<String>,
}

impl Graph {
    /// The layers of the graph, up to the one that computes `output`.
    pub fn summary(&self, output: Value) -> Summary {
        let shape = |value: Value| match (self.shapes[value.0], self.flat[value.0]) {
            (Shape { c, .. }, true) => format!("(None, {c})"),
            (Shape { h, w, c, .. }, false) => format!("(None, {h}, {w}, {c})"),
        };
        let producer = |value: &Value| {
            let node = self.nodes.iter().find(|node| node.output == *value);
            node.map_or("input".to_owned(), |node| node.name.clone())
        };
        let (name, kind) = ("input".to_owned(), "Input".to_owned());
        let mut rows =
            vec![SummaryRow { name, kind, shape: shape(self.input()), params: 0, inputs: Vec::new() }];
        let (mut trainable, mut non_trainable) = (0, 0);
        for node in self.nodes.iter().filter(|node| node.output.0 <= output.0) {
            let mut params = 0;
            for (_, _, spec) in specs(self).filter(|(_, layer, _)| *layer == node.name) {
                let len: usize = spec.shape.iter().product();
                params += len;
                *if spec.role == Role::Trainable { &mut trainable } else { &mut non_trainable } += len;
            }
            let inputs = node.inputs.iter().map(producer).collect();
            let (name, kind, shape) = (node.name.clone(), node.layer.kind().into_owned(), shape(node.output));
            rows.push(SummaryRow { name, kind, shape, params, inputs });
        }
        Summary { name: self.name.clone(), rows, trainable, non_trainable }
    }
}

/// `1652826` as `1,652,826`.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (k, ch) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            out.push(',');
        }
        out.push(ch);
    }
    out
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["Layer (type)", "Output Shape", "Param #", "Connected to"].map(str::to_owned);
        let sequential = self.rows.windows(2).all(|pair| pair[1].inputs == [pair[0].name.clone()]);
        let body = self.rows.iter().map(|row| {
            [
                format!("{} ({})", row.name, row.kind),
                row.shape.clone(),
                grouped(row.params),
                row.inputs.join(", "),
            ]
        });
        let table: Vec<[String; 4]> = [head].into_iter().chain(body).collect();
        let columns = if sequential { 3 } else { 4 };
        let width = |k: usize| table.iter().map(|row| row[k].chars().count()).max().unwrap_or(0) + 2;
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let rule = |ch: &str| ch.repeat(widths.iter().sum::<usize>());
        writeln!(f, "Model: \"{}\"\n{}", self.name, rule("_"))?;
        for (k, row) in table.iter().enumerate() {
            let line: String = (0..columns).map(|c| format!("{:<1$}", row[c], widths[c])).collect();
            writeln!(f, "{}", line.trim_end())?;
            if k == 0 {
                writeln!(f, "{}", rule("="))?;
            }
        }
        writeln!(f, "{}", rule("="))?;
        writeln!(f, "Total params: {}", grouped(self.trainable + self.non_trainable))?;
        writeln!(f, "Trainable params: {}", grouped(self.trainable))?;
        write!(f, "Non-trainable params: {}", grouped(self.non_trainable))
    }
}
