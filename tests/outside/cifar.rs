fn main() {
    let data = cifar::synthetic(1, 100, 10);
    println!("{} images of {:?}", data.train.len(), data.train.shape());
    if let Err(error) = cifar::Cifar::new(cifar::Kind::Cifar10).data_dir("none").also_look_in(["none"]).load() {
        println!("{error}");
    }
}
