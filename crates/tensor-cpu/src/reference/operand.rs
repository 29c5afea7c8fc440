use program::{Error, Layout, Result, Shape, View, ViewMut, Write};

/// A tensor to read, whose layout is known to fit its buffer.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    data: &'a [f64],
    layout: Layout,
}

impl<'a> Input<'a> {
    pub(super) fn new(op: &'static str, what: &'static str, x: View<'a, Vec<f64>>) -> Result<Self> {
        x.layout.check(op, what, x.data.len())?;
        Ok(Input { data: x.data, layout: x.layout })
    }

    pub(super) fn shape(self) -> Shape {
        self.layout.shape
    }

    /// The channels of pixel `row`, of all `n * h * w`.
    pub(super) fn row(self, row: usize) -> &'a [f64] {
        &self.data[place(self.layout, row)]
    }

    /// The channels of one pixel of one sample.
    pub(super) fn pixel(self, sample: usize, y: usize, x: usize) -> &'a [f64] {
        self.row(pixel(self.layout.shape, sample, y, x))
    }
}

/// A tensor to write, whose layout is known to fit its buffer.
pub(super) struct Output<'a> {
    data: &'a mut [f64],
    layout: Layout,
}

impl<'a> Output<'a> {
    pub(super) fn new(op: &'static str, what: &'static str, y: ViewMut<'a, Vec<f64>>) -> Result<Self> {
        y.layout.check(op, what, y.data.len())?;
        Ok(Output { data: y.data, layout: y.layout })
    }

    /// The same, for a while.
    pub(super) fn reborrow(&mut self) -> Output<'_> {
        Output { data: self.data, layout: self.layout }
    }

    pub(super) fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// The channels of pixel `row`, of all `n * h * w`.
    pub(super) fn row(&mut self, row: usize) -> &mut [f64] {
        &mut self.data[place(self.layout, row)]
    }

    /// The channels of one pixel of one sample.
    pub(super) fn pixel(&mut self, sample: usize, y: usize, x: usize) -> &mut [f64] {
        self.row(pixel(self.layout.shape, sample, y, x))
    }

    /// Makes ready for contributions that arrive one by one: to "set" is to add to zeros.
    pub(super) fn begin(&mut self, mode: Write) {
        if mode == Write::Set {
            (0..self.shape().rows()).for_each(|row| self.row(row).fill(0.0));
        }
    }
}

/// Both tensors, once they are known to have one shape.
pub(super) fn pair<'a>(
    op: &'static str,
    x: View<'a, Vec<f64>>,
    y: ViewMut<'a, Vec<f64>>,
) -> Result<(Input<'a>, Output<'a>)> {
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
pub(super) fn put(y: &mut f64, value: f64, mode: Write) {
    match mode {
        Write::Set => *y = value,
        Write::Add => *y += value,
    }
}
