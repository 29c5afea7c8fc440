//! The gradient check finds what it is for: backward passes that are slightly wrong.
#![allow(clippy::unwrap_used)]

use layers::{
    Backward, Dense, Flatten, Forward, Graph, Initializer, Layer, Op, ParamSpec, Place, Role, Value,
};
use tensor::{Backend, Result, Shape, Span, Storage, View, ViewMut, Write};
use testkit::{Error, GradientCheck, Report};

/// `y = x * s` with one trainable number `s`; its backward pass may be off by a share of either gradient.
#[derive(Clone, Copy, Debug, Default)]
struct Scale {
    input_off: f64,
    parameter_off: f64,
    /// Sets the input's gradient where it should add to it.
    forgets_to_add: bool,
}

impl Layer for Scale {
    fn kind(&self) -> &'static str {
        "Scale"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        Ok(x)
    }

    fn params(&self, _x: Shape) -> Vec<ParamSpec> {
        vec![ParamSpec { name: "scale", shape: vec![1], init: Initializer::Ones, role: Role::Trainable }]
    }

    fn build(&self, place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(ScaleOp { layer: *self, scale: place.params[0] }))
    }
}

struct ScaleOp {
    layer: Scale,
    scale: Span,
}

/// The elements of a contiguous tensor of the reference.
fn elements<'a>(x: &View<'a, Storage>) -> &'a [f64] {
    &x.data.as_f64().unwrap()[x.layout.offset..x.layout.end()]
}

fn elements_mut<'a>(x: &'a mut ViewMut<Storage>) -> &'a mut [f64] {
    let range = x.layout.offset..x.layout.end();
    &mut x.data.as_f64_mut().unwrap()[range]
}

impl Op for ScaleOp {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, mut y: ViewMut<Storage>) -> Result<()> {
        let scale = cx.params.as_f64().unwrap()[self.scale.offset];
        elements_mut(&mut y).iter_mut().zip(elements(&x)).for_each(|(y, x)| *y = x * scale);
        Ok(())
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        x: View<Storage>,
        _y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        let Scale { input_off, parameter_off, forgets_to_add } = self.layer;
        let dy = dy.as_view();
        let sum: f64 = elements(&x).iter().zip(elements(&dy)).map(|(x, dy)| x * dy).sum();
        cx.grads.as_f64_mut().unwrap()[self.scale.offset] = sum * (1.0 + parameter_off);
        let scale = cx.params.as_f64().unwrap()[self.scale.offset] * (1.0 + input_off);
        let Some((mut dx, write)) = dx else { return Ok(()) };
        if write == Write::Set || forgets_to_add {
            let at = Span::new(dx.layout.offset, dx.layout.shape.len());
            cx.device.fill(0.0, dx.data, at)?;
        }
        elements_mut(&mut dx).iter_mut().zip(elements(&dy)).for_each(|(dx, dy)| *dx += dy * scale);
        Ok(())
    }
}

/// dense(flatten(x)), the layer, dense again.
fn around(layer: impl Layer + 'static) -> (Graph, Value) {
    let mut graph = Graph::new("wrong", [2, 2, 2]);
    let x = graph.add(Flatten, graph.input()).unwrap();
    let x = graph.add(Dense::new(5), x).unwrap();
    let x = graph.add(layer, x).unwrap();
    let logits = graph.add(Dense::new(3), x).unwrap();
    (graph, logits)
}

fn check(layer: Scale) -> testkit::Result<Report> {
    let (graph, logits) = around(layer);
    GradientCheck::new().run(&graph, logits)
}

#[test]
fn the_right_gradient_passes() {
    let report = check(Scale::default()).unwrap();
    assert!(report.worst.error < 1e-8 && report.kinks == 0, "{report:?}");
    // The input's 16 elements, 40 and 15 weights, 5 and 3 biases, 1 scale.
    assert_eq!(report.checked, 16 + 40 + 15 + 5 + 3 + 1);
}

#[test]
fn a_parameter_off_by_a_hundredth_or_a_millionth_is_named() {
    for parameter_off in [1e-2, 1e-6, -1e-6] {
        let error = check(Scale { parameter_off, ..Scale::default() }).unwrap_err();
        let Error::Gradient { worst, wrong: 1, .. } = &error else { panic!("{error}") };
        assert_eq!((worst.name.as_str(), worst.index), ("scale/scale", 0), "{error}");
    }
}

#[test]
fn an_input_gradient_off_by_a_hundredth_spoils_what_comes_before() {
    let error = check(Scale { input_off: 1e-2, ..Scale::default() }).unwrap_err();
    let Error::Gradient { worst, wrong, .. } = &error else { panic!("{error}") };
    assert!(["input", "dense/kernel", "dense/bias"].contains(&worst.name.as_str()), "{error}");
    assert!(*wrong > 20, "{error}");
}

#[test]
fn nan_is_wrong() {
    let error = check(Scale { parameter_off: f64::NAN, ..Scale::default() }).unwrap_err();
    assert!(error.to_string().starts_with("wrong gradient: scale/scale[0] is NaN"), "{error}");
}

/// Where two layers read a tensor, the second in the backward pass must add.
#[test]
fn an_overwritten_gradient_is_found() {
    let check = |forgets_to_add: bool| {
        let mut graph = Graph::new("shared", [1, 1, 4]);
        let x = graph.add(Flatten, graph.input()).unwrap();
        let x = graph.add(Dense::new(4), x).unwrap();
        let a = graph.add(Scale { forgets_to_add, ..Scale::default() }, x).unwrap();
        let a = graph.add(Dense::new(2), a).unwrap();
        let b = graph.add(Dense::new(3), x).unwrap();
        let logits = graph.concat(&[a, b]).unwrap();
        GradientCheck::new().run(&graph, logits)
    };
    check(false).unwrap();
    assert!(matches!(check(true), Err(Error::Gradient { .. })));
}
