use super::{Rule, WeightDecay, check_epsilon, check_lengths, fading};
use crate::number::Number;
use crate::text::{NUMBER, Options, SWITCH, Style, Writer, check};
use crate::{Clip, Result};
use core::fmt;

/// Muon: SGD with momentum `m` whose direction is made orthogonal. For a matrix `p` of `rows` inputs and `columns` outputs with
/// the gradient `g`:
/// `v = m v + (1 - m) g`, `u = m v + (1 - m) g` (with Nesterov) or `v`, and `p -= lr f NS(u)`. `NS` brings all singular values of
/// a matrix to about 1, by some Newton-Schulz iterations; so a step has about the same size in every direction. The factor `f`
/// is [`Adjust`]'s. The length of `u` is lost, so velocities that are sums of gradients give the same steps.
///
/// A kernel of a convolution is the matrix of `height width channels` inputs and `filters` outputs; as a matrix of PyTorch it is
/// transposed, which changes nothing. Muon is for hidden layers: K. Jordan trains biases, normalizations and the last layer by
/// another rule, as does an [`Optimizer`](crate::Optimizer) by its [`rest`](crate::Optimizer::rest).
///
/// Conventions and defaults are those of `torch.optim.Muon`, but for its weight decay of 0.1 and its arithmetic in bf16. From K. Jordan
/// et al., "Muon: an optimizer for hidden layers in neural networks" (2024).
///
/// ```
/// use towers_optim::Muon;
///
/// let (muon, mut params, mut velocity) = (Muon::new(), [0.0; 6], [0.0; 6]);
/// // Two inputs, three outputs; one direction is a hundred times as long.
/// muon.step(0.1, [2, 3], &mut params, &[100.0, 0.0, 0.0, 0.0, 1.0, 0.0], &mut velocity);
/// assert!((-0.15..-0.08).contains(&params[0]) && (-0.15..-0.08).contains(&params[4]), "{params:?}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Muon {
    /// The momentum, `m`; 0 for none, which then needs no state.
    pub momentum: f32,
    /// Nesterov's form. Without momentum it changes nothing.
    pub nesterov: bool,
    /// The number of Newton-Schulz iterations, below 100: PyTorch's `ns_steps`.
    pub steps: u32,
    /// The least norm by which a direction is divided.
    pub epsilon: f32,
    /// The factor of the rate that depends on the shape: PyTorch's `adjust_lr_fn`.
    pub adjust: Adjust,
    /// Whether a step begins by bringing the norm of the parameters to the root of the number of outputs, as in airbench94.
    /// A step at a rate of 0 does not.
    pub normalize: bool,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

/// The factor of Muon's rate for a matrix of some inputs and outputs, by PyTorch's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adjust {
    /// `sqrt(max(1, outputs / inputs))`, K. Jordan's.
    #[default]
    Original,
    /// `0.2 sqrt(max(inputs, outputs))`, with which rates and weight decays are those of AdamW. From J. Liu et al., "Muon is
    /// scalable for LLM training" (2025).
    MatchRmsAdamw,
    /// `sqrt(outputs / inputs)`. From J. Bernstein, "Deriving Muon" (2025).
    SpectralUnclamped,
    /// 1.
    None,
}

impl Adjust {
    /// The factor for a matrix of these inputs and outputs.
    pub fn factor(self, [inputs, outputs]: [usize; 2]) -> f32 {
        let ratio = outputs as f64 / inputs.max(1) as f64;
        let factor = match self {
            Adjust::Original => ratio.max(1.0).sqrt(),
            Adjust::MatchRmsAdamw => 0.2 * (inputs.max(outputs) as f64).sqrt(),
            Adjust::SpectralUnclamped => ratio.sqrt(),
            Adjust::None => 1.0,
        };
        factor as f32
    }
}

impl Style for Adjust {
    const ALL: &[(&str, Self)] = &[
        ("original", Adjust::Original),
        ("match-rms-adamw", Adjust::MatchRmsAdamw),
        ("spectral-unclamped", Adjust::SpectralUnclamped),
        ("none", Adjust::None),
    ];
}

/// Which operand of a product of matrices is transposed. All lie row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `a b`.
    Plain,
    /// `aᵀ b`.
    LeftTransposed,
    /// `a bᵀ`.
    RightTransposed,
}

impl Muon {
    /// `a`, `b` and `c` of the polynomial `a x + b x^3 + c x^5` that an iteration applies to all singular values. It is K. Jordan's.
    /// It is steep at 0: five iterations bring all but tiny values to between 0.7 and 1.2.
    pub const POLYNOMIAL: [f32; 3] = [3.4445, -4.775, 2.0315];

    /// PyTorch's defaults, without a weight decay. (Its default rate is 0.001; K. Jordan's is 0.02.)
    pub const fn new() -> Self {
        Muon {
            momentum: 0.95,
            nesterov: true,
            steps: 5,
            epsilon: 1e-7,
            adjust: Adjust::Original,
            normalize: false,
            weight_decay: WeightDecay::None,
        }
    }

    /// The same with another momentum.
    pub fn momentum(self, momentum: f32) -> Self {
        Muon { momentum, ..self }
    }

    /// The same in Nesterov's form, or not.
    pub fn nesterov(self, nesterov: bool) -> Self {
        Muon { nesterov, ..self }
    }

    /// The same with another number of iterations.
    pub fn steps(self, steps: u32) -> Self {
        Muon { steps, ..self }
    }

    /// The same with another least norm.
    pub fn epsilon(self, epsilon: f32) -> Self {
        Muon { epsilon, ..self }
    }

    /// The same with another factor of the rate.
    pub fn adjust(self, adjust: Adjust) -> Self {
        Muon { adjust, ..self }
    }

    /// The same with parameters that are normalized before each step.
    pub fn normalize(self) -> Self {
        Muon { normalize: true, ..self }
    }

    /// The same with a weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        Muon { weight_decay, ..self }
    }

    /// One step of a matrix `shape` of rows (inputs) and columns (outputs), which lies row by row, at learning rate `lr`, in
    /// place. `velocity` starts at 0; with a momentum of 0 it may be empty.
    ///
    /// # Panics
    /// If the slices differ in length, or the shape has another number of elements.
    pub fn step(&self, lr: f32, shape: [usize; 2], params: &mut [f32], grads: &[f32], velocity: &mut [f32]) {
        assert_eq!(shape[0] * shape[1], params.len(), "a matrix has rows times columns elements");
        let mut direction = vec![0.0; params.len()];
        let squares = self.gather(params, grads, velocity, &mut direction);
        self.orthogonalize(shape, squares[1], &mut direction, &mut vec![0.0; Muon::work(shape)], multiply);
        self.apply(self.factors(lr, shape, squares[0]), params, &direction);
    }

    /// The first part of a step, for devices that take it in parts: updates the velocity, writes the `direction`, and returns the
    /// sums of the squares of the parameters and of the direction. Those of all parts of a matrix are added.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn gather(
        &self,
        params: &[f32],
        grads: &[f32],
        velocity: &mut [f32],
        direction: &mut [f32],
    ) -> [f64; 2] {
        check_lengths(params, [grads, direction]);
        let penalty = self.weight_decay.at(0.0).penalty;
        if self.momentum == 0.0 {
            for ((u, &p), &g) in direction.iter_mut().zip(params).zip(grads) {
                *u = g + penalty * p;
            }
        } else {
            check_lengths(params, [velocity]);
            let (keep, take) = (self.momentum, 1.0 - self.momentum);
            let (of_v, of_g) = if self.nesterov { (keep, take) } else { (1.0, 0.0) };
            for (((u, &p), &g), v) in direction.iter_mut().zip(params).zip(grads).zip(velocity) {
                let g = g + penalty * p;
                *v = keep * *v + take * g;
                *u = of_v * *v + of_g * g;
            }
        }
        [params, &*direction].map(Clip::squares)
    }

    /// How many elements of memory [`orthogonalize`](Muon::orthogonalize) needs beside a matrix of this shape.
    pub fn work([rows, columns]: [usize; 2]) -> usize {
        rows * columns + 2 * rows.min(columns).pow(2)
    }

    /// The second part: brings all singular values of the `direction`, whose squares have the sum `squares`, to about 1.
    /// `multiply(form, [m, k, n], a, b, out)` sets `out`, a matrix of `m` rows and `n` columns, to the product of `a` and `b`, a sum
    /// of `k` terms.
    ///
    /// # Panics
    /// If `work` is shorter than [`work`](Muon::work) says, or the shape has another number of elements.
    pub fn orthogonalize(
        &self,
        [rows, columns]: [usize; 2],
        squares: f64,
        direction: &mut [f32],
        work: &mut [f32],
        mut multiply: impl FnMut(Form, [usize; 3], &[f32], &[f32], &mut [f32]),
    ) {
        assert_eq!(rows * columns, direction.len(), "a matrix has rows times columns elements");
        let side = rows.min(columns);
        let (other, work) = work.split_at_mut(direction.len());
        let (gram, square) = work.split_at_mut(side * side);
        let square = &mut square[..side * side];
        let scale = (1.0 / squares.sqrt().max(f64::from(self.epsilon))) as f32;
        direction.iter_mut().for_each(|u| *u *= scale);
        let (mut from, mut to) = (direction, other);
        let [a, b, c] = Muon::POLYNOMIAL;
        for _ in 0..self.steps {
            // The smaller product of the matrix and its transpose.
            let (form, count) =
                if rows > columns { (Form::LeftTransposed, rows) } else { (Form::RightTransposed, columns) };
            multiply(form, [side, count, side], from, from, gram);
            multiply(Form::Plain, [side; 3], gram, gram, square);
            for (k, (square, gram)) in square.iter_mut().zip(&*gram).enumerate() {
                let one = if k % (side + 1) == 0 { a } else { 0.0 };
                *square = one + (b * gram + c * *square);
            }
            let factors = if rows > columns { [&*from, &*square] } else { [&*square, &*from] };
            multiply(Form::Plain, [rows, side, columns], factors[0], factors[1], to);
            core::mem::swap(&mut from, &mut to);
        }
        // Here each iteration swaps them: after an odd number the result lies in `work`.
        if self.steps % 2 == 1 {
            to.copy_from_slice(from);
        }
    }

    /// The factors of the parameters and of the orthogonal direction in a step, for parameters whose squares have this sum.
    pub fn factors(&self, lr: f32, shape: [usize; 2], squares: f64) -> [f32; 2] {
        let normalized = self.normalize && lr != 0.0 && squares > 0.0;
        let norm = if normalized { (shape[1] as f64 / squares).sqrt() as f32 } else { 1.0 };
        [norm * self.weight_decay.at(lr).keep, -lr * self.adjust.factor(shape)]
    }

    /// The last part: adds the orthogonal direction to the parameters, each times its [factor](Muon::factors).
    #[inline(always)]
    pub fn apply(&self, [of_params, of_direction]: [f32; 2], params: &mut [f32], direction: &[f32]) {
        for (p, u) in params.iter_mut().zip(direction) {
            *p = *p * of_params + of_direction * u;
        }
    }
}

/// See [`Muon::orthogonalize`].
fn multiply(form: Form, [m, k, n]: [usize; 3], a: &[f32], b: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for row in 0..m {
        let out = &mut out[row * n..(row + 1) * n];
        for i in 0..k {
            let factor = if form == Form::LeftTransposed { a[i * m + row] } else { a[row * k + i] };
            match form {
                Form::RightTransposed => {
                    out.iter_mut().enumerate().for_each(|(j, out)| *out += factor * b[j * k + i])
                }
                _ => out.iter_mut().zip(&b[i * n..]).for_each(|(out, b)| *out += factor * b),
            }
        }
    }
}

impl Default for Muon {
    fn default() -> Self {
        Muon::new()
    }
}

impl Rule for Muon {
    const COUNTS_STEPS: bool = false;
    const OF_TENSORS: bool = true;

    fn state(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["velocity"] }
    }

    /// Without a shape, as a matrix of one output.
    fn step_over(&self, lr: f32, _: u64, params: &mut [f32], grads: &[f32], [velocity, _]: [&mut [f32]; 2]) {
        self.step(lr, [params.len(), 1], params, grads, velocity);
    }

    fn constants(&self) -> Vec<f32> {
        vec![self.momentum, self.nesterov.into()]
    }

    fn read(_: &str, options: &mut Options) -> Result<Self> {
        let new = Muon::new();
        Ok(Muon {
            momentum: options.or("momentum", NUMBER, new.momentum)?,
            nesterov: options.or("nesterov", SWITCH, new.nesterov)?,
            steps: options.or("steps", "a whole number", new.steps)?,
            epsilon: options.or("epsilon", NUMBER, new.epsilon)?,
            adjust: options.style("adjust", "original, match-rms-adamw, spectral-unclamped or none")?,
            normalize: options.or("normalize", SWITCH, new.normalize)?,
            ..new
        })
    }

    fn write(&self, out: &mut Writer) -> fmt::Result {
        let new = Muon::new();
        out.unless_default("momentum", Number(self.momentum), Number(new.momentum))?;
        out.unless_default("nesterov", self.nesterov, new.nesterov)?;
        out.unless_default("steps", self.steps, new.steps)?;
        out.unless_default("epsilon", Number(self.epsilon), Number(new.epsilon))?;
        out.style("adjust", |adjust: &Adjust| *adjust == self.adjust)?;
        out.unless_default("normalize", self.normalize, new.normalize)
    }

    fn validate(&self) -> Result<()> {
        check("muon", "momentum", self.momentum, fading(self.momentum))?;
        check("muon", "steps", self.steps, ((1..100).contains(&self.steps), "a whole number from 1 to 99"))?;
        check_epsilon("muon", self.epsilon)
    }
}
