use crate::norm_operands::{Infer, Saved, Train};
use program::{
    Arena, Error, Executable, Layout, Memory, Result, Shape, Span, Step, TensorId, View, ViewMut, Write,
};

/// A tensor to read, whose layout is known to fit its buffer.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    data: &'a [f64],
    layout: Layout,
}

impl<'a> Input<'a> {
    pub(crate) fn new(op: &'static str, what: &'static str, x: View<'a, Vec<f64>>) -> Result<Self> {
        x.layout.check(op, what, x.data.len())?;
        Ok(Input { data: x.data, layout: x.layout })
    }

    pub(crate) fn shape(self) -> Shape {
        self.layout.shape
    }

    /// The channels of pixel `row`, of all `n * h * w`.
    pub(crate) fn row(self, row: usize) -> &'a [f64] {
        &self.data[place(self.layout, row)]
    }

    /// The channels of one pixel of one sample.
    pub(crate) fn pixel(self, sample: usize, y: usize, x: usize) -> &'a [f64] {
        self.row(pixel(self.layout.shape, sample, y, x))
    }
}

/// A tensor to write, whose layout is known to fit its buffer.
pub(crate) struct Output<'a> {
    data: &'a mut [f64],
    layout: Layout,
}

impl<'a> Output<'a> {
    pub(crate) fn new(op: &'static str, what: &'static str, y: ViewMut<'a, Vec<f64>>) -> Result<Self> {
        y.layout.check(op, what, y.data.len())?;
        Ok(Output { data: y.data, layout: y.layout })
    }

    /// The same, for a while.
    pub(crate) fn reborrow(&mut self) -> Output<'_> {
        Output { data: self.data, layout: self.layout }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// The channels of pixel `row`, of all `n * h * w`.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f64] {
        &mut self.data[place(self.layout, row)]
    }

    /// The channels of one pixel of one sample.
    pub(crate) fn pixel(&mut self, sample: usize, y: usize, x: usize) -> &mut [f64] {
        self.row(pixel(self.layout.shape, sample, y, x))
    }

    /// Makes ready for contributions that arrive one by one: to "set" is to add to zeros.
    pub(crate) fn begin(&mut self, mode: Write) {
        if mode == Write::Set {
            (0..self.shape().rows()).for_each(|row| self.row(row).fill(0.0));
        }
    }
}

/// Both tensors, once they are known to have one shape.
pub(crate) fn pair<'a>(op: &'static str, x: View<'a>, y: ViewMut<'a>) -> Result<(Input<'a>, Output<'a>)> {
    let (x, y) = (x.on(op)?, y.on(op)?);
    Error::check_shape(op, "the output", y.layout.shape, x.layout.shape)?;
    Ok((Input::new(op, "the input", x)?, Output::new(op, "the output", y)?))
}

fn pixel(shape: Shape, sample: usize, y: usize, x: usize) -> usize {
    (sample * shape.h + y) * shape.w + x
}

fn place(layout: Layout, row: usize) -> core::ops::Range<usize> {
    // Pixels without channels are nowhere.
    let start = if layout.shape.c == 0 { 0 } else { layout.offset + row * layout.stride };
    start..start + layout.shape.c
}

/// `y = value` or `y += value`.
pub(crate) fn put(y: &mut f64, value: f64, mode: Write) {
    match mode {
        Write::Set => *y = value,
        Write::Add => *y += value,
    }
}

/// What a step reads: copies of its operands.
pub(crate) struct Operands<'a> {
    pub(crate) values: Vec<(Vec<f64>, Layout)>,
    step: &'a Step,
    program: &'a Executable,
    n: usize,
}

impl<'a> Operands<'a> {
    pub(crate) fn new(
        program: &'a Executable,
        step: &'a Step,
        n: usize,
        memory: &Memory<Vec<f64>, Vec<u32>>,
    ) -> Self {
        let copy = |&id: &TensorId| {
            let layout = program.layout(id, n);
            let from: &[f64] = match program.program().tensor(id).arena {
                Arena::Activations => memory.activations,
                Arena::Statistics => memory.statistics,
                Arena::Parameters => memory.params,
                Arena::Gradients => memory.grads,
                Arena::Averages => memory.averages,
                Arena::Labels => return (Vec::new(), layout),
            };
            (from[layout.offset..layout.end()].to_vec(), Layout { offset: 0, ..layout })
        };
        Operands { values: step.operands.iter().map(copy).collect(), step, program, n }
    }

    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn read(&self, operand: usize) -> Result<Input<'_>> {
        let (data, layout) = &self.values[operand];
        Input::new(self.step.op.name(), "an operand", View::new(data, *layout))
    }

    pub(crate) fn run(&self, operand: usize) -> &[f64] {
        &self.values[operand].0
    }

    pub(crate) fn optional_run(&self, operand: usize) -> Option<&[f64]> {
        (operand < self.count()).then(|| self.run(operand))
    }

    pub(crate) fn infer(&self, gamma: usize) -> Infer<'_, f64> {
        let [gamma, beta, mean, var] = [0, 1, 2, 3].map(|k| self.run(gamma + k));
        Infer { gamma, beta, mean, var }
    }

    pub(crate) fn saved(&self) -> Saved<'_, f64> {
        Saved { gamma: self.run(1), beta: self.run(2), saved: self.run(3) }
    }

    /// The first result.
    pub(crate) fn write<'m>(&self, activations: &'m mut Vec<f64>) -> Result<Output<'m>> {
        let layout = self.program.layout(self.step.results[0], self.n);
        Output::new(self.step.op.name(), "the result", ViewMut::new(activations, layout))
    }

    pub(crate) fn train<'m>(
        &'m self,
        gamma: usize,
        statistics: &'m mut [f64],
        grads: &'m mut [f64],
    ) -> Train<'m, f64> {
        Train {
            gamma: self.run(gamma),
            beta: self.run(gamma + 1),
            bias: self.optional_run(gamma + 2),
            saved: &mut statistics[self.span(1).range()],
            sums: &mut grads[self.span(2).range()],
        }
    }

    /// Where a result lies.
    pub(crate) fn span(&self, result: usize) -> Span {
        self.program.span(self.step.results[result])
    }
}
