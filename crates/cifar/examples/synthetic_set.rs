//! The synthetic set, and what is said about data that are not there.

#[cfg_attr(test, test)]
fn main() {
    let data = towers_cifar::synthetic(1, 100, 10);
    println!("{} images of {:?}", data.train.len(), data.train.shape());
    if let Err(error) = towers_cifar::Cifar::new(towers_cifar::Kind::Cifar10)
        .data_dir("none")
        .also_look_in(["none"])
        .offline(true)
        .load()
    {
        println!("{error}");
    }
}
