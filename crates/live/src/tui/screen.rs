//! The screen: its content and its layout.

mod text;

use crate::RunStatus;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Styled, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph, Sparkline};
use text::{fold, packed};
use towers_callbacks::figure;
use towers_plot::Panel;

/// Blue for training and orange for validation, which colour-blind people can tell apart.
const TRAINING: Color = Color::LightBlue;
const VALIDATION: Color = Color::Yellow;

/// With fewer rows there are no charts; with fewer columns boxes are not side by side.
const ROWS_FOR_CHARTS: u16 = 18;
const COLUMNS_FOR_TWO: u16 = 70;

/// In a narrow terminal with this many rows, the charts are one below the other.
const ROWS_FOR_TWO: u16 = 34;

/// The most lines for the throughput of single replicas.
const MOST_REPLICA_LINES: usize = 3;

/// The content of the screen: numbers and texts, no terminal.
#[derive(Default)]
pub struct View {
    /// The run's folder.
    pub run: String,
    /// The address of the page.
    pub address: Option<String>,
    pub status: RunStatus,
    /// The lines that a run without the view would print.
    pub log: Vec<String>,
    /// Whether the run was asked to stop.
    pub stopping: bool,
}

pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    let wide = area.width >= COLUMNS_FOR_TWO;
    let charts = if area.height >= ROWS_FOR_CHARTS { Constraint::Fill(3) } else { Constraint::Length(0) };
    let head = headline(view, area.width);
    let replicas = replica_lines(view, area.width);
    let inner = usize::from(if wide { area.width / 2 } else { area.width }.saturating_sub(2));
    let figures = figures(view, inner);
    let numbers = 2 + figures.len() as u16;
    let rows = [
        Constraint::Length(head.len() as u16),
        Constraint::Length(1),
        charts,
        Constraint::Length(if wide { numbers } else { numbers + 4 }),
        Constraint::Length(replicas.len().min(MOST_REPLICA_LINES) as u16),
        Constraint::Fill(1),
    ];
    let [title, progress, charts, below, each, log] = Layout::vertical(rows).areas(area);
    frame.render_widget(Paragraph::new(head), title);
    let status = &view.status;
    let (share, epoch) = status.progress();
    frame.render_widget(Gauge::default().ratio(share).label(epoch).gauge_style(TRAINING), progress);
    both_charts(frame, charts, area.height >= ROWS_FOR_TWO, view);
    let [now, rate] = match wide {
        true => Layout::horizontal([Constraint::Fill(1); 2]).areas(below),
        false => Layout::vertical([Constraint::Length(numbers), Constraint::Fill(1)]).areas(below),
    };
    frame.render_widget(Paragraph::new(figures).block(Block::bordered().title("now")), now);
    throughput(frame, rate, view);
    frame.render_widget(Paragraph::new(replicas), each);
    let (lines, columns) =
        (usize::from(log.height.saturating_sub(2)), usize::from(log.width.saturating_sub(2)));
    let newest = view.log.iter().skip(view.log.len().saturating_sub(lines));
    let newest: Vec<String> = newest.flat_map(|line| fold(line, columns)).collect();
    let newest = newest.iter().skip(newest.len().saturating_sub(lines));
    let newest: Vec<Line<'_>> = newest.map(|line| Line::raw(line.as_str())).collect();
    frame.render_widget(Paragraph::new(newest).block(Block::bordered().title("log")), log);
}

/// The network, the folder, the devices, and how to stop: two lines or more.
fn headline(view: &View, width: u16) -> Vec<Line<'static>> {
    let hint = if view.stopping {
        let text = "stopping after this step, then saving; q again ends at once";
        text.to_owned().set_style(Style::new().fg(VALIDATION))
    } else {
        "q or Ctrl-C stops and saves".to_owned().set_style(Style::new().add_modifier(Modifier::DIM))
    };
    let run = format!("{} into {}", view.status.model, view.run).bold();
    let page = view.address.as_ref().map(|address| Span::raw(format!("page: {address}")));
    let devices = Span::raw(view.status.devices.clone());
    let mut lines = packed([run, hint], usize::from(width));
    lines.extend(packed([devices].into_iter().chain(page), usize::from(width)));
    lines
}

/// The lines with numbers: the epoch so far, the newest steps and the run.
fn figures(view: &View, width: usize) -> Vec<Line<'static>> {
    let status = &view.status;
    let step = status.step.iter().flat_map(|step| {
        let metrics = step.metrics.iter().map(|(name, value)| format!("{name} {}", figure(value)));
        metrics.chain([format!("lr {:.3e}", step.lr)])
    });
    let best = status
        .best()
        .map_or_else(String::new, |(epoch, acc)| format!("best val_acc {acc:.4} in epoch {epoch}"));
    let mut lines = packed(step.map(Span::raw), width);
    lines.extend(
        [best, status.time.to_string()].into_iter().flat_map(|text| fold(&text, width)).map(Line::raw),
    );
    lines
}

/// Accuracy and loss, side by side; in a narrow terminal one below the other if it is high, or else the accuracy alone.
fn both_charts(frame: &mut Frame<'_>, area: Rect, high: bool, view: &View) {
    if area.height == 0 {
        return;
    }
    let halves = [Constraint::Fill(1); 2];
    let [first, second] = match area.width >= COLUMNS_FOR_TWO {
        true => Layout::horizontal(halves).areas(area),
        false if high => Layout::vertical(halves).areas(area),
        false => Layout::vertical([Constraint::Fill(1), Constraint::Length(0)]).areas(area),
    };
    let (panels, last) = (view.status.metric_panels(), view.status.epochs_shown());
    let [loss, accuracy, ..] = &panels[..] else { return };
    let range = bounds(accuracy.curves.iter().flat_map(|curve| &curve.points).map(|(_, y)| *y));
    chart(frame, first, accuracy, range, last);
    if second.height > 0 {
        chart(frame, second, loss, (loss.y.range.start, loss.y.range.end), last);
    }
}

/// The throughput of each replica while it computes, as many per line as fit.
fn replica_lines(view: &View, width: u16) -> Vec<Line<'static>> {
    let each = view.status.replica_rates.iter().enumerate();
    let each: Vec<String> = each.map(|(rank, rate)| format!("replica {rank}: {rate:.0}")).collect();
    let Some(longest) = each.iter().map(|text| text.len() + 2).max() else { return Vec::new() };
    let words = " images/s computing";
    let beside = usize::from(width).saturating_sub(words.len()) / longest;
    let lines = each.chunks(beside.max(1)).map(|some| {
        let text: String = some.iter().map(|text| format!(" {text:<width$}", width = longest - 1)).collect();
        Line::raw(text + words)
    });
    lines.collect()
}

fn throughput(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let width = usize::from(area.width.saturating_sub(2));
    let title = match (view.status.rate(), view.status.replicas) {
        (None, _) => "images/s".to_owned(),
        (Some(rate), 1) => format!("{rate:.0} images/s"),
        (Some(rate), replicas) => {
            let short = format!("{rate:.0} images/s, {:.0} a replica", rate / replicas as f64);
            let long = format!("{short} on average");
            if long.len() <= width { long } else { short }
        }
    };
    let rates = &view.status.rates;
    let newest = rates.iter().skip(rates.len().saturating_sub(width));
    let bars = Sparkline::default().data(newest.map(|rate| *rate as u64)).style(TRAINING);
    frame.render_widget(bars.block(Block::bordered().title(title)), area);
}

/// Curves over the epochs that have run, from 0 to `last`. Values above the range are drawn at its end.
fn chart(frame: &mut Frame<'_>, area: Rect, panel: &Panel, (low, high): (f64, f64), last: u64) {
    const COLOURS: [Color; 2] = [TRAINING, VALIDATION];
    let low_enough = |points: &Vec<(f64, f64)>| Vec::from_iter(points.iter().map(|(x, y)| (*x, y.min(high))));
    let curves: Vec<_> = panel.curves.iter().map(|curve| low_enough(&curve.points)).collect();
    let line = |(data, colour)| {
        let line = Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line);
        line.style(colour).data(data)
    };
    let lines = curves.iter().map(Vec::as_slice).zip(COLOURS).map(line).collect();
    let x = Axis::default().bounds([0.0, last as f64]).labels(["0".to_owned(), format!("epoch {last}")]);
    let y = Axis::default().bounds([low, high]).labels([short(low), short(high)]);
    let names = panel.curves.iter().zip(COLOURS);
    let names = names.flat_map(|(curve, colour)| [" ".into(), curve.name.as_str().fg(colour)]);
    let title = Line::from_iter([Span::raw(panel.title.to_lowercase())].into_iter().chain(names));
    let chart = Chart::new(lines).x_axis(x).y_axis(y).legend_position(None);
    frame.render_widget(chart.block(Block::bordered().title(title)), area);
}

/// An end of an axis, in few characters.
fn short(value: f64) -> String {
    if value.abs() < 1e4 { format!("{value:.3}") } else { format!("{value:.1e}") }
}

/// The range of the values, with some margin.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)));
    match low <= high {
        true => {
            let room = ((high - low) * 0.05).max(1e-3);
            // Losses and accuracies are never below 0.
            ((low - room).max(low.min(0.0)), high + room)
        }
        false => (0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveStatus;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use towers_callbacks::{Observer, testing};

    fn shown(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
        terminal.draw(|frame| draw(frame, view)).expect("it is drawn");
        terminal.backend().to_string()
    }

    fn busy() -> View {
        let history = (1..=3).map(|epoch| {
            let loss = 2.0 / epoch as f64;
            let (acc, val_acc) =
                (0.2 * epoch as f64, if epoch == 2 { f64::NAN } else { 0.15 * epoch as f64 });
            let mut record = testing::record(epoch, [loss, acc, loss, val_acc]);
            record.images_per_second = 640.0;
            record
        });
        let state = testing::state(history.collect());
        let devices = "2 replicas, each on the CPU (1 thread)".into();
        let mut run = testing::run(10, &state);
        (run.model, run.devices, run.replicas) = ("minigooglenet", devices, 2);
        (run.steps_per_epoch, run.train_samples) = (20, 1280);
        let mut status = LiveStatus::default();
        let mut record = testing::step_record(65, 0.6, 0.7);
        (record.epoch, record.lr, record.images_per_second) = (4, 0.05, 640.0);
        let mut step = testing::step(4, 5, 20);
        (step.samples, step.metrics, step.lr) = (320, testing::means(0.6, 0.7), 0.05);
        let shown = [
            status.on_begin(&run),
            status.on_epoch_begin(4),
            status.on_step(&step),
            status.on_record(&record),
            status.on_replica_rates(&[412.0, 388.4]),
        ];
        assert!(shown.iter().all(Result::is_ok));
        let log = (1..40).map(|line| format!("line {line}.")).collect();
        View { run: "runs/a".into(), status: status.now(), log, ..View::default() }
    }

    #[test]
    fn everything_is_on_the_screen() {
        let text = shown(&busy(), 100, 40);
        for expected in [
            "minigooglenet into runs/a",
            "2 replicas, each on the CPU",
            "Epoch 4 of 10: step 5 of 20, 2s left",
            "accuracy",
            "loss 0.6000   acc 0.7000   lr 5.000e-2",
            "best val_acc 0.4500 in epoch 3",
            "3m elapsed, 7m left",
            // The axis spans what has run.
            "epoch 4\u{2502}",
            "640 images/s, 320 a replica on average",
            "replica 0: 412  replica 1: 388  images/s computing",
            "validation",
            "line 39.",
            "q or Ctrl-C stops and saves",
        ] {
            assert!(text.contains(expected), "no `{expected}` in\n{text}");
        }
        assert!(!text.contains("line 1."), "the oldest lines have left");
        let mut view = busy();
        (view.stopping, view.status.evaluating) = (true, Some((20, 100)));
        view.address = Some("http://127.0.0.1:8686/".into());
        let text = shown(&view, 100, 40);
        assert!(
            text.contains("stopping after this step")
                && text.contains("validating, 20 of 100")
                && text.contains("page: http://127.0.0.1:8686/"),
            "{text}"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_nothing() {
        let mut view = busy();
        view.status.devices =
            "2 replicas, each on an NVIDIA H100 80GB HBM3; device weights 2,1, as measured".into();
        view.log = vec![" - 10s - loss: 1.2070 - acc: 0.5699 - val_loss: 1.0953 - val_acc: 0.6220".into()];
        for width in [70, 60, 40] {
            let text = shown(&view, width, 40);
            let words: String =
                text.split(|ch: char| ch.is_whitespace() || "\"\u{2502}".contains(ch)).collect();
            for expected in [
                "minigooglenet into runs/a",
                "q or Ctrl-C stops and saves",
                "2 replicas, each on an NVIDIA H100 80GB HBM3; device weights 2,1, as measured",
                "loss 0.6000",
                "acc 0.7000",
                "lr 5.000e-2",
                "best val_acc 0.4500 in epoch 3",
                "3m elapsed, 7m left",
                "images/s, 320 a replica",
                "val_loss: 1.0953 - val_acc: 0.6220",
            ] {
                assert!(words.contains(&expected.replace(' ', "")), "no `{expected}` in\n{text}");
            }
            assert!(text.contains("loss training"), "both charts fit:\n{text}");
        }
    }

    #[test]
    fn a_loss_that_spikes_does_not_flatten_the_rest() {
        let mut view = busy();
        view.status.records = (1..=40).map(|step| testing::step_record(step, 2.0, 0.7)).collect();
        view.status.records.iter_mut().for_each(|record| record.epoch = 1);
        view.status.records[3].metrics.set("loss", 7.6e18);
        view.status.history.clear();
        let text = shown(&view, 100, 40);
        assert!(text.contains("2.500") && !text.contains("e18"), "{text}");
    }

    #[test]
    fn small_terminals_and_empty_runs_are_drawn_too() {
        for (width, height) in [(1, 1), (10, 3), (40, 12), (69, 30), (300, 100)] {
            shown(&busy(), width, height);
            shown(&View::default(), width, height);
        }
    }
}
