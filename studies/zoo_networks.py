"""The networks of the zoo: small versions of what other libraries build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
NETWORKS: dict[str, tuple[str, Callable[[], Made]]] = {}
TOKENS = 100


def network(library: str, name: str, *shape: int) -> Callable[[Callable[[], nn.Module]], None]:
    """Puts a network with inputs of this shape on the list."""

    def put(build: Callable[[], nn.Module]) -> None:
        def made() -> Made:
            return build(), (torch.randn(shape),), {}

        NETWORKS[name] = (library, made)

    return put


def tokens(library: str, name: str, *shape: int) -> Callable[[Callable[[], nn.Module]], None]:
    """Puts a network of tokens on the list."""

    def put(build: Callable[[], nn.Module]) -> None:
        def made() -> Made:
            return build(), (torch.randint(0, TOKENS, shape),), {}

        NETWORKS[name] = (library, made)

    return put


def _monai() -> None:
    from monai.networks import nets as m

    def add(name: str, shape: tuple[int, ...], build: Callable[[], nn.Module]) -> None:
        network("monai", name, *shape)(build)

    flat, deep = (2, 3, 32, 32), (2, 1, 32, 32, 32)
    add(
        "Discriminator",
        (2, 1, 32, 32),
        lambda: m.Discriminator(
            (1, 32, 32), channels=(8, 16, 32), strides=(2, 2, 2), num_res_units=0
        ),
    )
    add(
        "Discriminator, residual",
        (2, 1, 32, 32),
        lambda: m.Discriminator(
            (1, 32, 32), channels=(8, 16, 32), strides=(2, 2, 2), num_res_units=2
        ),
    )
    add(
        "Classifier",
        (2, 1, 32, 32),
        lambda: m.Classifier((1, 32, 32), 5, channels=(8, 16), strides=(2, 2)),
    )
    add(
        "Regressor",
        (2, 1, 32, 32),
        lambda: m.Regressor((1, 32, 32), (2,), channels=(8, 16), strides=(2, 2)),
    )
    add("Critic", (2, 1, 32, 32), lambda: m.Critic((1, 32, 32), channels=(8, 16), strides=(2, 2)))
    add(
        "Generator",
        (2, 12),
        lambda: m.Generator((12,), (8, 8, 8), channels=(8, 4, 1), strides=(2, 2, 1)),
    )
    add(
        "ResNet, basic",
        flat,
        lambda: m.ResNet(
            "basic",
            [1, 1, 1, 1],
            [16, 32, 64, 128],
            spatial_dims=2,
            n_input_channels=3,
            num_classes=10,
        ),
    )
    add(
        "ResNet, bottleneck",
        (2, 3, 64, 64),
        lambda: m.ResNet(
            "bottleneck",
            [1, 1, 1, 1],
            [8, 16, 32, 64],
            spatial_dims=2,
            n_input_channels=3,
            num_classes=10,
        ),
    )
    add(
        "ResNet, 3-D",
        deep,
        lambda: m.ResNet(
            "basic",
            [1, 1, 1, 1],
            [8, 16, 32, 64],
            spatial_dims=3,
            n_input_channels=1,
            conv1_t_stride=2,
            num_classes=10,
        ),
    )
    add(
        "ResNet, shortcut A",
        flat,
        lambda: m.ResNet(
            "basic",
            [1, 1, 1, 1],
            [16, 32, 64, 128],
            spatial_dims=2,
            n_input_channels=3,
            num_classes=10,
            shortcut_type="A",
        ),
    )
    add(
        "EfficientNet b0",
        (2, 3, 64, 64),
        lambda: m.EfficientNetBN(
            "efficientnet-b0", pretrained=False, spatial_dims=2, in_channels=3, num_classes=10
        ),
    )
    add(
        "DenseNet",
        flat,
        lambda: m.DenseNet(2, 3, 10, init_features=16, growth_rate=8, block_config=(2, 2, 2)),
    )
    add(
        "SE-ResNet",
        flat,
        lambda: m.SEResNet50(layers=(1, 1, 1, 1), spatial_dims=2, in_channels=3, num_classes=5),
    )
    add(
        "SE-ResNeXt",
        flat,
        lambda: m.SEResNext50(layers=(1, 1, 1, 1), spatial_dims=2, in_channels=3, num_classes=5),
    )
    add("BasicUNet", (2, 1, 32, 32), lambda: m.BasicUNet(2, 1, 2, features=(8, 8, 16, 32, 64, 8)))
    add(
        "BasicUNet++",
        (2, 1, 32, 32),
        lambda: m.BasicUNetPlusPlus(2, 1, 2, features=(8, 8, 16, 32, 64, 8)),
    )
    add(
        "UNet, residual",
        (2, 1, 32, 32),
        lambda: m.UNet(2, 1, 2, channels=(8, 16, 32), strides=(2, 2), num_res_units=2),
    )
    add(
        "AttentionUnet",
        (2, 1, 32, 32),
        lambda: m.AttentionUnet(2, 1, 2, channels=(8, 16, 32), strides=(2, 2)),
    )
    add(
        "DynUNet",
        (2, 1, 32, 32),
        lambda: m.DynUNet(
            2,
            1,
            2,
            kernel_size=[3, 3, 3],
            strides=[1, 2, 2],
            upsample_kernel_size=[2, 2],
            filters=[8, 16, 32],
        ),
    )
    add(
        "FlexibleUNet",
        (2, 3, 64, 64),
        lambda: m.FlexibleUNet(
            3, 2, "efficientnet-b0", pretrained=False, decoder_channels=(32, 16, 16, 8, 8)
        ),
    )
    add("VNet", (2, 1, 16, 16, 16), lambda: m.VNet(3, 1, 2, dropout_dim=3))
    add("SegResNet", deep, lambda: m.SegResNet(3, init_filters=8, in_channels=1, out_channels=2))
    add(
        "SegResNetDS", deep, lambda: m.SegResNetDS(3, init_filters=8, in_channels=1, out_channels=2)
    )
    add("HighResNet", (2, 1, 16, 16, 16), lambda: m.HighResNet(3, 1, 2))
    add(
        "AHNet",
        (2, 1, 64, 64),
        lambda: m.AHNet(
            layers=(1, 1, 1, 1), spatial_dims=2, in_channels=1, out_channels=2, psp_block_num=0
        ),
    )
    add(
        "AutoEncoder",
        (2, 1, 32, 32),
        lambda: m.AutoEncoder(2, 1, 1, channels=(8, 16), strides=(2, 2)),
    )
    add(
        "VarAutoEncoder",
        (2, 1, 32, 32),
        lambda: m.VarAutoEncoder(2, (1, 32, 32), 1, 6, channels=(8, 16), strides=(2, 2)),
    )
    add("FullyConnectedNet", (2, 10), lambda: m.FullyConnectedNet(10, 3, [16, 12]))
    add(
        "ViT",
        flat,
        lambda: m.ViT(
            3,
            (32, 32),
            (8, 8),
            hidden_size=48,
            mlp_dim=96,
            num_layers=2,
            num_heads=4,
            classification=True,
            num_classes=10,
            spatial_dims=2,
        ),
    )
    add(
        "ViTAutoEnc",
        flat,
        lambda: m.ViTAutoEnc(
            3,
            (32, 32),
            (16, 16),
            hidden_size=48,
            mlp_dim=96,
            num_layers=2,
            num_heads=4,
            spatial_dims=2,
        ),
    )
    add(
        "UNETR",
        deep,
        lambda: m.UNETR(
            1, 2, (32, 32, 32), feature_size=4, hidden_size=24, mlp_dim=48, num_heads=4
        ),
    )
    add(
        "SwinUNETR",
        (2, 1, 64, 64),
        lambda: m.SwinUNETR(
            1, 2, feature_size=12, spatial_dims=2, depths=(1, 1, 1, 1), num_heads=(1, 2, 2, 4)
        ),
    )
    add(
        "MedNeXt",
        deep,
        lambda: m.MedNeXt(
            3,
            init_filters=8,
            in_channels=1,
            out_channels=2,
            blocks_down=(1, 1, 1, 1),
            blocks_bottleneck=1,
            blocks_up=(1, 1, 1, 1),
        ),
    )
    add("HoVerNet", (2, 3, 256, 256), lambda: m.HoVerNet(mode="fast", out_classes=2))
    add("PatchDiscriminator", (2, 1, 64, 64), lambda: m.PatchDiscriminator(2, 8, 1, num_layers_d=2))
    add(
        "VQVAE",
        (2, 1, 32, 32),
        lambda: m.VQVAE(
            2,
            1,
            1,
            channels=(8, 16),
            num_res_layers=1,
            num_res_channels=(8, 16),
            downsample_parameters=((2, 4, 1, 1), (2, 4, 1, 1)),
            upsample_parameters=((2, 4, 1, 1, 0), (2, 4, 1, 1, 0)),
            num_embeddings=8,
            embedding_dim=6,
        ),
    )
    add(
        "AutoencoderKL",
        (2, 1, 32, 32),
        lambda: m.AutoencoderKL(
            2,
            1,
            1,
            num_res_blocks=(1, 1),
            channels=(8, 16),
            attention_levels=(False, True),
            latent_channels=3,
            norm_num_groups=4,
        ),
    )
    add("RegUNet", (2, 1, 32, 32), lambda: m.RegUNet(2, 1, 8, 2, out_channels=2))
    add(
        "LocalNet",
        (2, 1, 32, 32),
        lambda: m.LocalNet(
            2,
            1,
            8,
            extract_levels=(0, 1, 2),
            out_kernel_initializer="kaiming_uniform",
            out_activation=None,
            out_channels=2,
        ),
    )

    def diffusion() -> Made:
        net = m.DiffusionModelUNet(
            2,
            1,
            1,
            channels=(8, 16),
            attention_levels=(False, True),
            num_res_blocks=1,
            num_head_channels=8,
            norm_num_groups=4,
        )
        return net, (torch.randn(2, 1, 16, 16), torch.tensor([3, 7])), {}

    NETWORKS["DiffusionModelUNet"] = ("monai", diffusion)


def _transformers() -> None:
    import transformers as t

    small: dict[str, Any] = {
        "vocab_size": TOKENS,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "max_position_embeddings": 32,
    }
    cached = {"use_cache": False}
    images = {"image_size": 32, "num_labels": 10}

    def text(name: str, build: Callable[[], nn.Module]) -> None:
        tokens("transformers", name, 2, 16)(build)

    def image(name: str, build: Callable[[], nn.Module], side: int = 32) -> None:
        network("transformers", name, 2, 3, side, side)(build)

    text("BERT", lambda: t.BertForSequenceClassification(t.BertConfig(**small, num_labels=3)))
    text("BERT, masked words", lambda: t.BertForMaskedLM(t.BertConfig(**small)))
    text(
        "RoBERTa",
        lambda: t.RobertaForSequenceClassification(
            t.RobertaConfig(**{**small, "max_position_embeddings": 40}, num_labels=3)
        ),
    )
    text(
        "DistilBERT",
        lambda: t.DistilBertForSequenceClassification(
            t.DistilBertConfig(
                vocab_size=TOKENS,
                dim=48,
                n_layers=2,
                n_heads=4,
                hidden_dim=96,
                max_position_embeddings=32,
                num_labels=3,
            )
        ),
    )
    text(
        "ALBERT",
        lambda: t.AlbertForSequenceClassification(
            t.AlbertConfig(**small, embedding_size=24, num_labels=3)
        ),
    )
    text(
        "ELECTRA",
        lambda: t.ElectraForSequenceClassification(
            t.ElectraConfig(**small, embedding_size=24, num_labels=3)
        ),
    )
    text(
        "GPT-2",
        lambda: t.GPT2LMHeadModel(
            t.GPT2Config(
                vocab_size=TOKENS, n_positions=32, n_embd=48, n_layer=2, n_head=4, **cached
            )
        ),
    )
    text("GPT-NeoX", lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**small, **cached)))
    text(
        "OPT",
        lambda: t.OPTForCausalLM(
            t.OPTConfig(
                vocab_size=TOKENS,
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                ffn_dim=96,
                max_position_embeddings=32,
                word_embed_proj_dim=48,
                **cached,
            )
        ),
    )
    text(
        "LLaMA",
        lambda: t.LlamaForCausalLM(
            t.LlamaConfig(**small, num_key_value_heads=2, tie_word_embeddings=True, **cached)
        ),
    )
    text(
        "Qwen2", lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**small, num_key_value_heads=2, **cached))
    )
    text(
        "Mistral",
        lambda: t.MistralForCausalLM(t.MistralConfig(**small, num_key_value_heads=2, **cached)),
    )
    text(
        "Gemma",
        lambda: t.GemmaForCausalLM(
            t.GemmaConfig(**small, num_key_value_heads=1, head_dim=12, **cached)
        ),
    )
    text("Phi", lambda: t.PhiForCausalLM(t.PhiConfig(**small, **cached)))
    text(
        "Bloom",
        lambda: t.BloomForCausalLM(
            t.BloomConfig(vocab_size=TOKENS, hidden_size=48, n_layer=2, n_head=4, **cached)
        ),
    )
    text(
        "Falcon",
        lambda: t.FalconForCausalLM(
            t.FalconConfig(
                vocab_size=TOKENS,
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                **cached,
            )
        ),
    )
    image(
        "ViT (transformers)",
        lambda: t.ViTForImageClassification(
            t.ViTConfig(
                **images,
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=96,
                patch_size=8,
            )
        ),
    )
    image(
        "DeiT",
        lambda: t.DeiTForImageClassification(
            t.DeiTConfig(
                **images,
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=96,
                patch_size=8,
            )
        ),
    )
    image(
        "BEiT",
        lambda: t.BeitForImageClassification(
            t.BeitConfig(
                **images,
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=96,
                patch_size=8,
            )
        ),
    )
    image(
        "Swin",
        lambda: t.SwinForImageClassification(
            t.SwinConfig(
                **images, embed_dim=12, depths=[1, 2], num_heads=[2, 4], window_size=4, patch_size=2
            )
        ),
    )
    image(
        "ConvNeXt",
        lambda: t.ConvNextForImageClassification(
            t.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_labels=10)
        ),
    )
    image(
        "ConvNeXt V2",
        lambda: t.ConvNextV2ForImageClassification(
            t.ConvNextV2Config(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_labels=10)
        ),
    )
    image(
        "MobileNet V1",
        lambda: t.MobileNetV1ForImageClassification(
            t.MobileNetV1Config(image_size=32, depth_multiplier=0.25, num_labels=10)
        ),
    )
    image(
        "MobileNet V2",
        lambda: t.MobileNetV2ForImageClassification(
            t.MobileNetV2Config(image_size=32, num_labels=10, depth_multiplier=0.5)
        ),
    )
    image(
        "RegNet",
        lambda: t.RegNetForImageClassification(
            t.RegNetConfig(
                embedding_size=16,
                hidden_sizes=[16, 32, 48],
                depths=[1, 1, 1],
                groups_width=8,
                layer_type="y",
                num_labels=10,
            )
        ),
    )
    image(
        "ResNet (transformers)",
        lambda: t.ResNetForImageClassification(
            t.ResNetConfig(
                embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_labels=10
            )
        ),
    )
    image(
        "PoolFormer",
        lambda: t.PoolFormerForImageClassification(
            t.PoolFormerConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_labels=10)
        ),
    )
    image(
        "SegFormer",
        lambda: t.SegformerForSemanticSegmentation(
            t.SegformerConfig(
                hidden_sizes=[8, 16, 24, 32],
                depths=[1, 1, 1, 1],
                num_attention_heads=[1, 2, 2, 4],
                decoder_hidden_size=16,
                num_labels=5,
            )
        ),
        64,
    )
    image(
        "MobileViT",
        lambda: t.MobileViTForImageClassification(
            t.MobileViTConfig(
                image_size=64,
                hidden_sizes=[16, 24, 32],
                neck_hidden_sizes=[8, 8, 16, 24, 32, 32, 64],
                num_labels=10,
            )
        ),
        64,
    )
    image(
        "CvT",
        lambda: t.CvtForImageClassification(
            t.CvtConfig(embed_dim=[8, 16, 32], num_heads=[1, 2, 4], depth=[1, 2, 3], num_labels=10)
        ),
        64,
    )

    def whisper() -> Made:
        config = t.WhisperConfig(
            vocab_size=TOKENS,
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            num_mel_bins=8,
            max_source_positions=16,
            max_target_positions=16,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            **cached,
        )
        sounds = torch.randn(2, 8, 32)
        words = torch.randint(3, TOKENS, (2, 6))
        return t.WhisperForConditionalGeneration(config), (sounds,), {"decoder_input_ids": words}

    def t5() -> Made:
        config = t.T5Config(
            vocab_size=TOKENS,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
            **cached,
        )
        words = torch.randint(3, TOKENS, (2, 10))
        more = torch.randint(3, TOKENS, (2, 6))
        return (
            t.T5ForConditionalGeneration(config),
            (),
            {"input_ids": words, "decoder_input_ids": more},
        )

    NETWORKS["Whisper"] = ("transformers", whisper)
    NETWORKS["T5"] = ("transformers", t5)


def _tables() -> None:
    import rtdl_revisiting_models as r

    network("rtdl", "MLP (tables)", 4, 10)(
        lambda: r.MLP(d_in=10, d_out=2, n_blocks=2, d_block=16, dropout=0.1)
    )
    network("rtdl", "ResNet (tables)", 4, 10)(
        lambda: r.ResNet(
            d_in=10,
            d_out=2,
            n_blocks=2,
            d_block=16,
            d_hidden=None,
            d_hidden_multiplier=2.0,
            dropout1=0.1,
            dropout2=0.0,
        )
    )

    def transformer() -> Made:
        net = r.FTTransformer(
            n_cont_features=10,
            cat_cardinalities=[3, 4],
            d_out=2,
            n_blocks=2,
            d_block=16,
            attention_n_heads=4,
            attention_dropout=0.1,
            ffn_d_hidden=None,
            ffn_d_hidden_multiplier=2.0,
            ffn_dropout=0.1,
            residual_dropout=0.0,
        )
        kinds = torch.stack([torch.randint(0, 3, (4,)), torch.randint(0, 4, (4,))], dim=1)
        return net, (torch.randn(4, 10), kinds), {}

    NETWORKS["FT-Transformer"] = ("rtdl", transformer)


class _OnGraph(nn.Module):
    """A network on a graph whose edges are fixed."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        edges = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 4]])
        self.register_buffer("edges", edges)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x, self.edges)
        return found


def _geometric() -> None:
    from torch_geometric import nn as g

    for name in ("GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN"):
        if name == "PNA":
            continue

        def build(kind: str = name) -> nn.Module:
            return _OnGraph(getattr(g, kind)(8, 16, 2, 3, norm="batch"))

        network("torch-geometric", name, 5, 8)(build)


class _Recurrent(nn.Module):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 12)
        self.body = getattr(nn, kind)(12, 16, batch_first=True, **options)
        self.head = nn.Linear(32 if options.get("bidirectional") else 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.body(self.embedding(x))
        found: Tensor = self.head(states[:, -1])
        return found


def _recurrent() -> None:
    for kind in ("LSTM", "GRU", "RNN"):
        for layers in (1, 2):
            for both in (False, True):
                name = f"{kind}, {layers} layer{'s' * (layers > 1)}{', both ways' * both}"

                def build(kind: str = kind, layers: int = layers, both: bool = both) -> nn.Module:
                    return _Recurrent(kind, num_layers=layers, bidirectional=both)

                tokens("torch", name, 2, 12)(build)


for library in (_monai, _transformers, _tables, _geometric, _recurrent):
    library()
