use towers_program::{
    Arena, Error, Executable, Layout, Memory, Result, Shape, Step, TensorId, View, ViewMut, Write,
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

/// The operands of a step, as copies.
pub(crate) struct Operands<'a> {
    op: &'static str,
    values: Vec<(TensorId, Vec<f64>, Layout)>,
    labels: &'a [u32],
}

/// The results of a step, as copies that [`Results::store`] writes back.
pub(crate) struct Results {
    op: &'static str,
    values: Vec<(TensorId, Vec<f64>, Layout)>,
}

/// The results of a step, each of which is lent once.
pub(crate) struct Lent<'a> {
    op: &'static str,
    values: Vec<(TensorId, Option<&'a mut Vec<f64>>, Layout)>,
}

/// Copies of tensors, each with its place in memory.
fn copies<'a>(
    program: &'a Executable,
    ids: &'a [TensorId],
    n: usize,
    memory: &'a Memory<Vec<f64>, Vec<u32>>,
) -> impl Iterator<Item = (TensorId, Vec<f64>, Layout)> {
    ids.iter().map(move |&id| {
        let layout = program.layout(id, n);
        let from: &[f64] = match program.program().tensor(id).arena {
            Arena::Activations => memory.activations,
            Arena::Statistics => memory.statistics,
            Arena::Parameters => memory.params,
            Arena::Gradients => memory.grads,
            Arena::Averages => memory.averages,
            Arena::Labels => return (id, Vec::new(), layout),
        };
        (id, from[layout.offset..layout.end()].to_vec(), layout)
    })
}

impl<'a> Operands<'a> {
    pub(crate) fn new(
        program: &Executable,
        step: &Step,
        n: usize,
        memory: &Memory<'a, Vec<f64>, Vec<u32>>,
    ) -> Self {
        let values = copies(program, &step.operands, n, memory).collect();
        Operands { op: step.op.name(), values, labels: memory.labels }
    }

    fn find(&self, id: TensorId) -> (&Vec<f64>, Layout) {
        let found = self.values.iter().find(|(operand, ..)| *operand == id);
        let (_, data, layout) = found.expect("a step reads its operands");
        (data, Layout { offset: 0, ..*layout })
    }

    pub(crate) fn read(&self, operand: TensorId) -> Result<Input<'_>> {
        let (data, layout) = self.find(operand);
        Input::new(self.op, "an operand", View::new(data, layout))
    }

    /// The same with another layout of the copy.
    pub(crate) fn read_as(&self, operand: TensorId, layout: impl Fn(Layout) -> Layout) -> Result<Input<'_>> {
        let (data, own) = self.find(operand);
        Input::new(self.op, "an operand", View::new(data, layout(own)))
    }

    pub(crate) fn run(&self, operand: TensorId) -> &[f64] {
        self.find(operand).0
    }

    pub(crate) fn labels(&self) -> &'a [u32] {
        self.labels
    }
}

impl Results {
    pub(crate) fn new(
        program: &Executable,
        step: &Step,
        n: usize,
        memory: &Memory<Vec<f64>, Vec<u32>>,
    ) -> Self {
        Results { op: step.op.name(), values: copies(program, &step.results, n, memory).collect() }
    }

    pub(crate) fn lend(&mut self) -> Lent<'_> {
        let values = self.values.iter_mut().map(|(id, data, layout)| (*id, Some(data), *layout)).collect();
        Lent { op: self.op, values }
    }

    pub(crate) fn store(self, program: &Executable, memory: Memory<Vec<f64>, Vec<u32>>) {
        for (id, data, layout) in self.values {
            let to = match program.program().tensor(id).arena {
                Arena::Activations => &mut *memory.activations,
                Arena::Statistics => &mut *memory.statistics,
                Arena::Gradients => &mut *memory.grads,
                Arena::Parameters | Arena::Averages | Arena::Labels => continue,
            };
            to[layout.offset..layout.end()].copy_from_slice(&data);
        }
    }
}

impl<'a> Lent<'a> {
    fn take(&mut self, id: TensorId) -> (&'a mut Vec<f64>, Layout) {
        let found = self.values.iter_mut().find(|(result, ..)| *result == id);
        let (_, data, layout) = found.expect("a step writes its results");
        (data.take().expect("a result is lent once"), *layout)
    }

    /// A tensor of activations.
    pub(crate) fn write(&mut self, result: TensorId) -> Result<Output<'a>> {
        let (data, layout) = self.take(result);
        Output::new(self.op, "the result", ViewMut::new(data, Layout { offset: 0, ..layout }))
    }

    /// The same with another layout of the copy.
    pub(crate) fn write_as(
        &mut self,
        result: TensorId,
        layout: impl Fn(Layout) -> Layout,
    ) -> Result<Output<'a>> {
        let (data, own) = self.take(result);
        Output::new(self.op, "the result", ViewMut::new(data, layout(Layout { offset: 0, ..own })))
    }

    /// A part of the first result, whose place in memory is told.
    pub(crate) fn write_part(&mut self, part: Layout) -> Result<Output<'_>> {
        let (_, data, whole) = self.values.first_mut().expect("the op has a result");
        let data = data.as_mut().expect("parts are not lent as a whole");
        let layout = Layout { offset: part.offset - whole.offset, ..part };
        Output::new(self.op, "the result", ViewMut::new(data, layout))
    }

    pub(crate) fn run(&mut self, result: TensorId) -> &'a mut [f64] {
        self.take(result).0
    }

    /// The same for a result that the step may lack: nothing then.
    pub(crate) fn optional_run(&mut self, result: Option<TensorId>) -> &'a mut [f64] {
        result.map_or_else(Default::default, |result| self.run(result))
    }
}
