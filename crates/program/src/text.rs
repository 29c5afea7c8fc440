//! A program in print: the first thing to look at when one is wrong.

use crate::{Arena, Executable, Home, Phase, Program, Shape, Step, TensorId};
use core::fmt;

impl Program {
    /// A tensor's name in print: `%3`, `@conv2d/kernel`.
    pub fn name(&self, id: TensorId) -> String {
        let tensor = self.tensor(id);
        match &tensor.name {
            Some(name) => format!("{}{name}", tensor.arena.mark()),
            None => format!("{}{}", tensor.arena.mark(), id.0),
        }
    }

    /// A tensor's shape in print: rows, columns and channels, or a length.
    pub fn shape_text(&self, id: TensorId) -> String {
        match self.shape(id) {
            Shape { n: 1, h: 1, w: 1, c } => format!("({c})"),
            Shape { n: 1, h, w, c } => format!("({h}, {w}, {c})"),
            shape => shape.to_string(),
        }
    }

    /// A step in print.
    pub fn step_text(&self, step: &Step) -> String {
        self.step_with(step, |id| self.name(id))
    }

    /// A step in print, with a name for each tensor.
    fn step_with(&self, step: &Step, name: impl Fn(TensorId) -> String) -> String {
        let result = |&id: &TensorId| {
            let shape = if self.tensor(id).name.is_some() { String::new() } else { self.shape_text(id) };
            let inside = match self.tensor(id).home {
                Home::In(outer, at) if self.shape(outer).c == self.shape(id).c && at == 0 => {
                    format!("in {}", self.name(outer))
                }
                Home::In(outer, at) => format!("in {}[{at}..]", self.name(outer)),
                Home::Free | Home::At(_) => String::new(),
            };
            let parts = [name(id), shape, inside];
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        };
        let results: Vec<String> = step.results.iter().map(result).collect();
        let sign = match step.onto {
            _ if results.is_empty() => "",
            Some(_) => " += ",
            None => " = ",
        };
        let options = step.op.options();
        let space = if options.is_empty() { "" } else { " " };
        let operands: Vec<String> = step.operands.iter().map(|&id| name(id)).collect();
        let op = step.op.name();
        format!("{}{sign}{op}{space}{options} {}", results.join(", "), operands.join(", "))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for step in &self.steps {
            let place = (step.phase, step.layer);
            if last != Some(place) {
                let layer = self.layers.get(step.layer).map_or("", String::as_str);
                match step.phase {
                    Phase::Forward => writeln!(f, "{layer}:")?,
                    Phase::Loss => writeln!(f, "loss:")?,
                    Phase::Backward => writeln!(f, "{layer}, backward:")?,
                }
                last = Some(place);
            }
            writeln!(f, "  {}", self.step_text(step).trim_end())?;
        }
        Ok(())
    }
}

/// Each step with its number, its cost for the largest batch, the pass that made it, and where in their arenas its tensors lie: `%3@1024`.
impl fmt::Display for Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.program();
        let head = ["step", "MFLOP", "MB", "pass", "what"];
        let rows = program.steps.iter().enumerate().map(|(k, step)| {
            let flops = 2 * self.batch() * program.multiply_adds(step);
            let numbers: usize =
                step.reads().chain(step.results.iter().copied()).map(|id| self.numbers(id)).sum();
            let place =
                |id: TensorId| format!("{}@{}", program.name(id), self.layout(id, self.batch()).offset);
            [
                k.to_string(),
                if flops == 0 { String::new() } else { format!("{:.1}", flops as f64 / 1e6) },
                format!("{:.2}", (numbers * size_of::<f32>()) as f64 / 1e6),
                step.pass.to_owned(),
                program.step_with(step, place),
            ]
        });
        let rows: Vec<[String; 5]> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let [steps, flops, bytes, passes] = [0, 1, 2, 3].map(width);
        for [k, flop, megabytes, pass, what] in &rows {
            writeln!(
                f,
                "{k:>steps$}  {flop:>flops$}  {megabytes:>bytes$}  {pass:<passes$}  {}",
                what.trim_end()
            )?;
        }
        let [activations, statistics] = [Arena::Activations, Arena::Statistics].map(|arena| self.len(arena));
        writeln!(f, "{activations} activations, {statistics} statistics, for a batch of {}", self.batch())
    }
}

impl Executable {
    /// Elements of a tensor, for the largest batch.
    fn numbers(&self, id: TensorId) -> usize {
        self.layout(id, self.batch()).shape.len()
    }
}

impl fmt::Display for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arena::Activations => "activations",
            Arena::Statistics => "statistics",
            Arena::Parameters => "parameters",
            Arena::Gradients => "gradients",
            Arena::Averages => "averages",
            Arena::Labels => "labels",
        })
    }
}
