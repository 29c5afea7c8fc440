//! Draws the losses in a CSV file: `cargo run -p towers-plot --example curves_of_csv -- history.csv curves.svg`

use towers_plot::{Chart, Curve, Panel, Scale};

/// Three epochs, the second of which was not validated.
const SAMPLE: &str = "epoch,loss,val_loss\n1,2.3,1.9\n2,1.1,\n3,0.6,0.9\n";

/// A curve for each column whose name ends with `loss`.
fn chart(csv: &str) -> Option<Chart> {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next()?;
    let rows: Vec<_> = lines.collect();
    let losses = header.iter().enumerate().filter(|(_, name)| name.ends_with("loss"));
    let curves: Vec<Curve> = losses
        .enumerate()
        .map(|(colour, (column, name))| {
            // A value that is missing leaves a gap.
            let value = |row: &Vec<&str>| row.get(column)?.parse().ok();
            let values = rows.iter().map(|row| value(row).unwrap_or(f64::NAN));
            Curve::new(*name, values).colour(colour).dashed(name.starts_with("val_"))
        })
        .collect();
    let lowest = curves.last()?.points.iter().copied().filter(|point| point.1.is_finite());
    let lowest = lowest.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let panel = Panel::new("Loss", Scale::Loss, curves).highlight("the best epoch", lowest);
    Some(Chart::new("a run", vec![panel]).subtitle(format!("{} epochs", rows.len())))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let csv = arguments.next().map_or(Ok(SAMPLE.to_owned()), std::fs::read_to_string)?;
    let svg = chart(&csv).ok_or("there are no losses")?.svg();
    match arguments.next() {
        Some(file) => std::fs::write(file, svg)?,
        None => print!("{svg}"),
    }
    Ok(())
}

#[test]
fn a_curve_for_each_column() {
    let chart = chart(SAMPLE).unwrap();
    let panel = &chart.panels[0];
    assert_eq!((panel.curves.len(), panel.y.range.end), (2, 2.5));
    assert_eq!(panel.highlight.as_ref().map(|best| best.at), Some((3.0, 0.9)));
    let svg = chart.svg();
    assert!(svg.contains("val_loss") && svg.contains("epoch 3, loss: 0.6"), "{svg}");
}
