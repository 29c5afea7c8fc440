//! Tables of pictures and their classes.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use towers_pictures::{Dataset, Error, Pictures, Split, Table, ValidationFrom};

use crate::folder::picture;

/// A folder with these pictures, each of another red.
fn folder_of(names: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (k, name) in names.iter().enumerate() {
        picture(dir.path(), name, (2, 2), [10 * (k as u8 + 1), 0, 0]);
    }
    dir
}

/// Twelve pictures, half of them cats by their first letter.
const ANIMALS: [&str; 12] = [
    "c1.png", "c2.png", "c3.png", "c4.png", "c5.png", "c6.png", "d1.png", "d2.png", "d3.png", "d4.png",
    "d5.png", "d6.png",
];

fn table_in(dir: &Path, text: &str) -> Table {
    let file = dir.join("labels.csv");
    fs::write(&file, text).unwrap();
    Table::new(file)
}

fn read(table: Table) -> towers_pictures::Result<(Dataset, Vec<String>)> {
    let mut told = Vec::new();
    let pictures = Pictures::table(table).image_size(2, 2);
    let data = pictures.progress(|step| told.push(step.to_string().replace('\\', "/"))).read()?;
    Ok((data, told))
}

/// The notes on a table in a folder, without the folder.
fn told(dir: &Path, text: &str) -> (Dataset, Vec<String>) {
    let (data, told) = read(table_in(dir, text)).unwrap_or_else(|error| panic!("{text}: {error}"));
    let file = format!("{}: ", dir.join("labels.csv").display());
    (data, told.into_iter().map(|line| line.replace(&file, "")).collect())
}

fn refusal(dir: &Path, text: &str) -> String {
    match read(table_in(dir, text)) {
        Err(error @ (Error::Table { .. } | Error::Columns { .. })) => error.to_string(),
        other => panic!("{text}: {other:?}"),
    }
}

/// The label of each picture by the first channel of its first pixel.
fn labels(split: &Split) -> Vec<(u8, u16)> {
    split.iter().map(|(image, label)| (image[[0, 0, 0]], label)).collect()
}

fn animals(line: impl Fn(&str, &str) -> String) -> String {
    let class = |name: &str| if name.starts_with('c') { "cat" } else { "dog" };
    ANIMALS.iter().map(|name| line(name, class(name)) + "\n").collect()
}

/// A table says what class folders say: the same data set, to the order of its pictures.
#[test]
fn a_table_and_class_folders_are_the_same_data() {
    let names: Vec<String> =
        ["cat", "dog"].iter().flat_map(|class| (0..7).map(move |k| format!("{class}/{k}.png"))).collect();
    let dir = folder_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let folders = Pictures::class_folders(dir.path()).image_size(2, 2).read().unwrap();
    let lines = |name: &String| format!("{name},{}\n", &name[..3]);
    let text: String = names.iter().rev().map(lines).collect();
    let (data, _) = told(dir.path(), &format!("path,label\n{text}"));
    assert_eq!((data.name.as_str(), &data.classes), ("labels.csv", &folders.classes));
    assert_eq!((&data.train, &data.test), (&folders.train, &folders.test));
    assert_eq!(data.validation_from, Some(ValidationFrom::HeldBack));
    let limited =
        |pictures: Pictures<'_>| pictures.image_size(2, 2).limit_train(4).on_demand_above(0).read().unwrap();
    let [table, folders] = [
        limited(Pictures::table(Table::new(dir.path().join("labels.csv")))),
        limited(Pictures::class_folders(dir.path())),
    ];
    assert_eq!(table.train.labels, folders.train.labels);
    assert_eq!(
        (0..4).map(|k| table.train.path(k)).collect::<Vec<_>>(),
        (0..4).map(|k| folders.train.path(k)).collect::<Vec<_>>()
    );
}

/// The headers of Kaggle's competitions, of Keras and of fastai.
#[test]
fn columns_are_known_by_their_usual_names() {
    let dir = folder_of(&ANIMALS);
    for (header, names) in [
        ("id,breed", "`id` names the pictures, and `breed` their classes"),
        ("image_id,label", "`image_id` names the pictures, and `label` their classes"),
        ("image_name,tags", "`image_name` names the pictures, and `tags` their classes"),
        ("image,labels", "`image` names the pictures, and `labels` their classes"),
        ("filename,class", "`filename` names the pictures, and `class` their classes"),
        ("File Name,Category", "`File Name` names the pictures, and `Category` their classes"),
        ("name,label", "`name` names the pictures, and `label` their classes"),
        ("Image,Id", "assumed that `Image` names the pictures, and `Id` their classes"),
        ("id_code,diagnosis", "assumed that `id_code` names the pictures, and `diagnosis` their classes"),
        ("which,target", "assumed that `which` names the pictures, and `target` their classes"),
    ] {
        let (data, said) =
            told(dir.path(), &format!("{header}\n{}", animals(|name, class| format!("{name},{class}"))));
        assert_eq!(
            (data.classes, data.train.len(), data.test.len()),
            (vec!["cat".into(), "dog".into()], 10, 2)
        );
        assert_eq!(said, [names], "{header}");
    }
    let numbered = "`filename` names the pictures, and `label` their classes";
    let text = animals(|name, class| format!("7,9,{name},0.5,{class}"));
    let (data, said) = told(dir.path(), &format!(",id,filename,width,label\n{text}"));
    assert_eq!((data.train.len(), said), (10, vec![numbered.to_owned()]));
    let named =
        table_in(dir.path(), &format!("a,b,label\n{}", animals(|name, class| format!("{class},{name},x"))));
    let (data, said) = read(named.clone().columns(["B", "a"])).unwrap();
    assert_eq!((data.classes, said), (vec!["cat".into(), "dog".into()], vec![]));
    let error = read(named.columns(["b", "c"])).unwrap_err().to_string();
    assert!(error.ends_with("labels.csv: it has no column `c`; its columns are `a`, `b`, `label`; name those of the pictures and classes"), "{error}");
}

#[test]
fn spreadsheets_and_tables_without_header_are_read() {
    let dir = folder_of(&ANIMALS);
    let plain =
        told(dir.path(), &format!("id,label\n{}", animals(|name, class| format!("{name},{class}")))).0;
    for (text, says) in [
        (
            animals(|name, class| format!("{name},{class}")),
            vec!["it has no header; the first field of a line is the picture, the second its class"],
        ),
        (
            format!(
                "\u{feff}id;label\r\n{}",
                animals(|name, class| format!("{name};{class}")).replace('\n', "\r\n")
            ),
            vec!["`id` names the pictures, and `label` their classes", "its fields are separated by `;`"],
        ),
        (
            format!("id\tlabel\n{}", animals(|name, class| format!("\"{name}\"\t \"{class}\"")))
                .replace(" \"", "\""),
            vec!["`id` names the pictures, and `label` their classes", "its fields are separated by tabs"],
        ),
        (
            format!(
                "id,label,note\n\n{},,\n",
                animals(|name, class| format!("\"./{name}\" , {class},\"a, \"\"b\"\"\nc\""))
            ),
            vec!["`id` names the pictures, and `label` their classes"],
        ),
        (
            format!(
                "id,label\n{}c1,cat\n./c1.png,cat",
                animals(|name, class| format!("{},{class}", &name[..2]))
            ),
            vec![
                "`id` names the pictures, and `label` their classes",
                "2 lines name a picture again, with the same classes",
            ],
        ),
    ] {
        let (data, said) = told(dir.path(), &text);
        assert_eq!(
            (data.train == plain.train, data.test == plain.test, said),
            (true, true, says.iter().map(|&line| line.to_owned()).collect()),
            "{text}"
        );
    }
}

#[test]
fn numbers_are_sorted_as_numbers_and_other_pictures_are_told() {
    let dir = folder_of(&["a/x1.png", "b/x2.jpg", "x3.png", "b/x4.png", "more/x5.png", "more/x6.png"]);
    let (data, said) = told(dir.path(), "id,label\nx1,10\nx2,9\nx3,9\nx4,10\n");
    assert_eq!(data.classes, ["9", "10"]);
    assert_eq!((labels(&data.train), labels(&data.test)), (vec![(20, 0), (10, 1)], vec![(30, 0), (40, 1)]));
    assert_eq!(said.last().unwrap(), "left out 2 pictures that the table does not list, as more/x5.png");
}

#[test]
fn a_column_of_words_decides_the_splits() {
    let dir = folder_of(&ANIMALS);
    let split = |name: &str| match &name[1..2] {
        "5" => "val",
        "6" => "test",
        _ => "train",
    };
    let text = animals(|name, class| format!("{name},{class},{}", split(name)));
    let (data, said) = told(dir.path(), &format!("image,label,Split\n{text}"));
    assert_eq!(labels(data.validation.as_ref().unwrap()), [(50, 0), (110, 1)]);
    assert_eq!((labels(&data.test), data.train.len()), (vec![(60, 0), (120, 1)], 8));
    assert_eq!(data.validation_from.unwrap().to_string(), "from the column `Split`");
    assert_eq!(said, ["`image` names the pictures, and `label` their classes", "`Split` names the splits"]);

    let text = animals(|name, class| {
        format!("{name},{class},{}", if name.contains('5') { "True" } else { "False" })
    });
    let (data, _) = told(dir.path(), &format!("fname,label,is_valid\n{text}"));
    assert_eq!(
        (labels(&data.test), data.train.len(), data.validation.is_some()),
        (vec![(50, 0), (110, 1)], 10, false)
    );
    assert!(data.validation_from == Some(ValidationFrom::Validation("the column `is_valid`".into())));

    let text = animals(|name, class| format!("{name},{class},{}", &name[1..2]));
    let (data, said) = told(dir.path(), &format!("image,label,fold\n{text}"));
    assert_eq!((data.validation_from, data.test.len()), (Some(ValidationFrom::HeldBack), 2));
    assert_eq!(said[1], "`fold` is not read, since `1` is none of train, val and test");

    let text = animals(|name, class| format!("{name},{class},?"));
    let (data, said) = told(dir.path(), &format!("image,label,valid\n{text}"));
    assert_eq!(
        (data.test.len(), &said[1][..]),
        (2, "`valid` is not read, since `?` is none of True and False")
    );

    let measured = |text: &str| {
        let table = table_in(dir.path(), text);
        let data = Pictures::table(table).whole(true).limit_train(0).read().unwrap();
        (data.classes, data.train.len(), data.test.len(), data.validation_from)
    };
    let (cat, whole) = (vec!["cat".to_owned()], Some(ValidationFrom::Whole));
    assert_eq!(measured("image,label\nc1,cat\nc2,cat\n"), (cat.clone(), 0, 2, whole.clone()));
    assert_eq!(measured("c1.png,cat"), (cat.clone(), 0, 1, whole));
    let test = Some(ValidationFrom::Test("the column `set`".into()));
    assert_eq!(measured("image,label,set\nc1,cat,test\n"), (cat, 0, 1, test));
}

/// A column for each class: one 1 in each row is a class, another number makes a picture have any number of classes.
#[test]
fn columns_of_0_and_1_are_classes() {
    let dir = folder_of(&["1.png", "2.png", "3.png", "4.png"]);
    let (data, said) = told(dir.path(), "image_id,rust,healthy\n1,1,0\n2,0,1.0\n3,1,0\n4,0,1\n");
    assert_eq!(
        (&data.classes[..], data.is_multi_label()),
        (&["healthy".to_owned(), "rust".to_owned()][..], false)
    );
    assert_eq!((labels(&data.train), labels(&data.test)), (vec![(20, 0), (10, 1)], vec![(40, 0), (30, 1)]));
    assert_eq!(said, ["`image_id` names the pictures, and 2 columns of 0 and 1 are their classes"]);
    let (data, _) =
        told(dir.path(), "image_id,rust,healthy,set\n1,1,-1,train\n2,1,1,train\n3,-1,-1,train\n4,-1,1,val");
    assert_eq!(rows(&data.train), [(20, vec![1, 1]), (30, vec![0, 0]), (10, vec![0, 1])]);
    assert_eq!(rows(&data.test), [(40, vec![1, 0])]);
    let named =
        table_in(dir.path(), "x,y,a,b\n1,7,1,0\n2,7,0,1\n3,7,0,1\n4,7,1,0\n").columns(["x", "a", "b"]);
    assert_eq!(read(named).unwrap().0.classes, ["a", "b"]);
}

/// The rows of each picture by the first channel of its first pixel.
fn rows(split: &Split) -> Vec<(u8, Vec<u8>)> {
    let rows = split.multi_hot.as_ref().unwrap();
    split.iter().zip(rows.rows()).map(|((image, _), row)| (image[[0, 0, 0]], row.to_vec())).collect()
}

#[test]
fn pictures_may_have_several_classes() {
    let dir = folder_of(&["1.png", "2.png", "3.png", "4.png", "5.png"]);
    let text = "image_name,tags\n1,haze|primary\n2,primary\n3,\n4,water| haze\n";
    let (data, _) = told(dir.path(), text);
    assert_eq!(data.classes, ["haze", "primary", "water"]);
    assert_eq!(
        (rows(&data.train), data.train.labels.to_vec()),
        (vec![(10, vec![1, 1, 0]), (30, vec![0, 0, 0]), (20, vec![0, 1, 0])], vec![0, 0, 1])
    );
    assert_eq!(rows(&data.test), [(40, vec![1, 0, 1])]);
    // In files, and limited to nothing, they are the same.
    let of =
        |pictures: Pictures<'_>| pictures.image_size(2, 2).limit_train(0).on_demand_above(0).read().unwrap();
    let streamed = of(Pictures::table(table_in(dir.path(), text)));
    assert_eq!(
        (streamed.test.multi_hot, streamed.train.multi_hot.unwrap().dim()),
        (data.test.multi_hot, (0, 3))
    );

    let spaced =
        table_in(dir.path(), "image_name,tags\n1,haze primary\n2,primary\n3,haze\n4,\"primary  haze\"\n");
    let (data, said) = read(spaced.clone().label_separator(" ")).unwrap();
    assert_eq!((&data.classes[..], said.len()), (&["haze".to_owned(), "primary".to_owned()][..], 2));
    assert_eq!(rows(&data.train), [(10, vec![1, 1]), (30, vec![1, 0]), (20, vec![0, 1])]);
    let lists = table_in(
        dir.path(),
        "image_name,tags\n1,haze water\n2,haze clear\n3,water\n4,clear water\n5,haze water\n",
    );
    let (_, said) = read(lists).unwrap();
    assert_eq!(
        said[1],
        "many labels look like lists, as `haze water`; the label separator ` ` takes them apart"
    );
}

#[test]
fn what_is_wrong_with_a_table_is_said() {
    let dir = folder_of(&["1.png", "2.png", "a/3.png", "b/3.png", "b/4.gif", "b/4.png"]);
    fs::write(dir.path().join("5.tiff"), "II*").unwrap();
    let folder = dir.path().display();
    let missing = format!("2 pictures of 3 are not in {folder}, as `7` in line 2");
    let tiff = format!(
        "1 picture of 1 is not in {folder}, as `5.tiff` in line 2, whose ending is none of .bmp, .gif,"
    );
    for (text, says) in [
        ("", "it has no line for a picture"),
        ("id,label\n", "it has no line for a picture"),
        (
            "id,label\n1,a\n2\n",
            "line 3 has 1 field, the first line 2; a field with a separator in it needs quotes",
        ),
        ("id,label\n7,a\n1,a\n8,b\n", &missing),
        ("id,label\n5.tiff,a\n", &tiff),
        (
            "id,label\n../1.png,a\n",
            "line 2: `../1.png` is refused: it leads out of a folder; it must be a path within ",
        ),
        (
            "id,label\n/1.png,a\n",
            "line 2: `/1.png` is refused: it is an absolute path; it must be a path within ",
        ),
        (
            "id,label\n3,a\n",
            "line 2: `3` may be `a/3.png` or `b/3.png`; name the folder that has one of them",
        ),
        ("id,label\nb/4,a\n", "line 2: `b/4` may be `b/4.gif` or `b/4.png`"),
        ("id,label\n1,a\n1.png,b\n", "`1.png` is `a` in line 2, but `b` in line 3"),
        ("id,label\n1,a|b\n1.png,\n", "`1.png` is `a|b` in line 2, but no class in line 3"),
        ("id,label\n1,a\n2,\n", "a line has no class, as line 3; name one, or leave them out"),
        ("id,label\n1,a\n2,a\n", "it has 1 class, but 2 or more are needed"),
        ("id,label\n1,a\n2,b\n", "it has no picture for the test split"),
        ("id,label,split\n1,a,train\n2,b,val\n", "the class `b` of line 3 has no picture to train on"),
        (
            "id,label,split\n1,a,train\n1,a,val\n2,b,train",
            "`1.png` is in one split in line 2, in another in line 3",
        ),
        (
            "id,label,split\n1,a,train\n2,b,extra\n",
            "line 3: `extra` in the column `split` is none of train, val and test",
        ),
        (
            "\nid,label,is_valid\n1,\"a\nb\",no\n\n2,b,\n",
            "line 6: `` in the column `is_valid` is none of True and False",
        ),
        (
            "id,cat,dog\n1,0,1\n2,-1,1\n",
            "its columns of classes have both 0 and -1; write 0 where a picture lacks",
        ),
        (
            "id,label,split\n1,a,0\n2,b,1\n",
            "line 2: `0` in the column `split` is none of train, val and test",
        ),
        ("id,label,split,is_valid\n1,a,val,1\n", "its columns `split` and `is_valid` both name splits"),
        (
            "image,filename,label\n1,1,a\n",
            "it is not clear which of `image`, `filename` names the pictures; its columns are",
        ),
        (
            "image,label,class\n1,1,a\n",
            "it is not clear which of `label`, `class` names their classes; its columns are",
        ),
        (
            "image,height,width\n1,2,3\n",
            "no column is known to name the classes, and not all others have 0 and 1",
        ),
        (
            "image,cat,dog\n1,1,0\n2,0,2\n",
            "no column is known to name the classes, and not all others have 0 and 1",
        ),
        (
            "height,width\n1.5,2\n",
            "no column is known to name the pictures, and none their classes; its columns are",
        ),
        ("label,width\na,3.5\n", "no column is known to name the pictures; its columns are"),
        ("1.png,a,b\n2.png,a,b\n", "it has 3 columns and no header"),
        ("id\n1\n", "no column is known to name the classes"),
    ] {
        let error = refusal(dir.path(), text);
        assert!(error.contains(&format!("labels.csv: {says}")), "{text}: {error}");
    }
    fs::write(dir.path().join("labels.csv"), b"id,label\n1,\xe4\n").unwrap();
    let error = read(Table::new(dir.path().join("labels.csv"))).unwrap_err().to_string();
    assert!(error.ends_with("it is not UTF-8; save it as CSV in UTF-8"), "{error}");
    assert!(matches!(read(Table::new(dir.path().join("none.csv"))), Err(Error::File(_))));
    assert!(matches!(read(table_in(dir.path(), "id,label\n1,a").folder("none")), Err(Error::File(_))));
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_refused() {
    let (outside, dir) = (folder_of(&["secret.png"]), folder_of(&["1.png"]));
    std::os::unix::fs::symlink(outside.path().join("secret.png"), dir.path().join("2.png")).unwrap();
    let error = refusal(dir.path(), "id,label\n1,a\n2,b\n");
    assert!(error.contains("line 3: `2` is a link out of the folder of the pictures"), "{error}");
}

#[test]
fn damaged_pictures_of_a_table_are_left_out() {
    let dir = folder_of(&ANIMALS);
    fs::write(dir.path().join("c1.png"), "no picture").unwrap();
    let text = format!("id,label\n{}", animals(|name, class| format!("{name},{class}")));
    let pictures = || Pictures::table(table_in(dir.path(), &text)).skip_unreadable(true);
    let data = pictures().read().unwrap();
    assert_eq!((data.train.len(), data.unreadable.len()), (9, 1));
    for name in &ANIMALS[..5] {
        fs::write(dir.path().join(name), "no picture").unwrap();
    }
    let error = pictures().read().unwrap_err().to_string();
    assert!(error.ends_with("labels.csv: the class `cat`: none of its pictures can be decoded"), "{error}");
}
