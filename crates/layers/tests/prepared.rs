//! A device plans a program before the program runs.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use towers_layers::{BatchNormalization, Dense, Flatten, Graph, Mode};
use towers_optim::{Clip, Sam, UpdateRule};
use towers_program::{
    Backend, Bytes, Executable, GradNorms, ImageSet, Ints, LoadImages, Memory, ParamRun, Result, Span,
    StepArgs, Storage, View, ViewMut, Write,
};
use towers_tensor_cpu::Reference;

/// The reference, which keeps the text of each program that it prepares.
#[derive(Debug)]
struct Noting(Arc<Mutex<Vec<String>>>);

impl Backend for Noting {
    fn name(&self) -> String {
        Reference.name()
    }
    fn kind(&self) -> &'static str {
        Reference.kind()
    }
    fn alloc(&self, len: usize) -> Result<Storage> {
        Reference.alloc(len)
    }
    fn alloc_ints(&self, len: usize) -> Result<Ints> {
        Reference.alloc_ints(len)
    }
    fn alloc_bytes(&self, len: usize) -> Result<Bytes> {
        Reference.alloc_bytes(len)
    }
    fn upload(&self, src: &[f32], dst: &mut Storage, offset: usize) -> Result<()> {
        Reference.upload(src, dst, offset)
    }
    fn upload_ints(&self, src: &[u32], dst: &mut Ints) -> Result<()> {
        Reference.upload_ints(src, dst)
    }
    fn upload_bytes(&self, src: &[u8], dst: &mut Bytes, offset: usize) -> Result<()> {
        Reference.upload_bytes(src, dst, offset)
    }
    fn download(&self, src: &Storage, offset: usize, dst: &mut [f32]) -> Result<()> {
        Reference.download(src, offset, dst)
    }
    fn prepare(&self, program: &Executable) -> Result<()> {
        self.0.lock().expect("nothing panics").push(program.to_string());
        Reference.prepare(program)
    }
    fn run(&self, program: &Executable, steps: Range<usize>, args: &StepArgs, memory: Memory) -> Result<()> {
        Reference.run(program, steps, args, memory)
    }
    fn fill(&self, value: f32, dst: &mut Storage, at: Span) -> Result<()> {
        Reference.fill(value, dst, at)
    }
    fn copy(&self, x: View, y: ViewMut, write: Write) -> Result<()> {
        Reference.copy(x, y, write)
    }
    fn ema_step(
        &self,
        momentum: f32,
        scale: f32,
        sums: &Storage,
        from: Span,
        running: &mut Storage,
        to: Span,
    ) -> Result<()> {
        Reference.ema_step(momentum, scale, sums, from, running, to)
    }
    fn load_images(
        &self,
        load: &LoadImages,
        set: ImageSet,
        draws: &Ints,
        first: usize,
        x: ViewMut,
        to: &mut Ints,
    ) -> Result<()> {
        Reference.load_images(load, set, draws, first, x, to)
    }
    fn softmax(&self, x: View, y: ViewMut) -> Result<()> {
        Reference.softmax(x, y)
    }
    fn meter(&self, sums: &Storage, metrics: Span, meter: &mut Storage) -> Result<()> {
        Reference.meter(sums, metrics, meter)
    }
    fn clip_grads(&self, clip: Clip, grads: &mut Storage, norms: &mut GradNorms) -> Result<()> {
        Reference.clip_grads(clip, grads, norms)
    }
    fn ascend(&self, sam: &Sam, params: &mut Storage, grads: &Storage, norms: &mut GradNorms) -> Result<()> {
        Reference.ascend(sam, params, grads, norms)
    }
    fn optimizer_step(
        &self,
        rule: &UpdateRule,
        lr: f32,
        params: &mut Storage,
        grads: &Storage,
        state: &mut [&mut Storage],
        runs: &[ParamRun],
    ) -> Result<()> {
        Reference.optimizer_step(rule, lr, params, grads, state, runs)
    }
}

#[test]
fn synchronized_passes_are_prepared_too() -> towers_layers::Result<()> {
    let prepared = Arc::new(Mutex::new(Vec::new()));
    let mut graph = Graph::new("test", [2, 2, 3]);
    let x = graph.add(BatchNormalization::new(), graph.input())?;
    let x = graph.add(Flatten, x)?;
    let logits = graph.add(Dense::new(2), x)?;
    let device = Noting(Arc::clone(&prepared)).into();
    let mut network = graph.build(logits, &device, 4, Mode::Training)?;
    let count = || prepared.lock().expect("nothing panics").len();
    assert_eq!(count(), 2, "inference and training");
    assert!(network.synchronize(0, 2)?);
    assert_eq!(count(), 3);
    assert!(prepared.lock().expect("nothing panics")[2].contains("all_gather"), "{prepared:?}");
    Ok(())
}
