"""Faults of a vLLM engine, below what our proof reads: put on vLLM's path in the place of `vllm_inside`.

What goes wrong is what lies in a slot once an adapter has been activated, or what the kernels do with it.
"""

import json

import vllm_inside

PREVIOUS = "previous"


def _sites(manager):
    return [(a, b) for _, a, b in vllm_inside._sites(manager)]


def not_loaded(manager, lora_id, slot, _source):
    manager._deactivate_adapter(lora_id)


def base_served(manager, _lora_id, slot, _source):
    for module in manager.modules.values():
        module.reset_lora(slot)


def one_module_missing(manager, _lora_id, slot, _source):
    next(m for n, m in manager.modules.items() if n.endswith("layers.1.mlp.down_proj")).reset_lora(slot)


def wrong_alpha(manager, _lora_id, slot, _source):
    for _, b in _sites(manager):
        b[slot] *= 2


def transposed(manager, _lora_id, slot, _source):
    for a, _ in _sites(manager):
        a[slot] = a[slot].transpose(-1, -2).reshape(a[slot].shape)


def half_loaded(manager, _lora_id, slot, _source):
    for module in list(manager.modules.values())[::2]:
        module.reset_lora(slot)


def dtype(manager, _lora_id, slot, _source):
    for a, b in _sites(manager):
        a[slot], b[slot] = a[slot].bfloat16(), b[slot].bfloat16()


def of_another(manager, _lora_id, slot, source):
    """The slot is given what lies in another's: of another member, or of the step before."""
    theirs = manager.lora_index_to_id.index(source)
    for a, b in _sites(manager):
        a[slot], b[slot] = a[theirs], b[theirs]


class Reader(vllm_inside.Reader):
    def arena_break(self, how, source=0):
        """From now on every adapter that is activated goes wrong."""
        manager = self.model_runner.lora_manager._adapter_manager
        activate = type(manager).activate_adapter

        def broken(lora_id):
            done = activate(manager, lora_id)
            if done and lora_id in manager.lora_index_to_id:
                globals()[how](manager, lora_id, manager.lora_index_to_id.index(lora_id), source)
            return done

        manager.activate_adapter = broken

    def arena_bypass(self, ending):
        """Layers whose name ends so compute without their adapter, though it lies there."""
        for name, module in self.model_runner.lora_manager._adapter_manager.modules.items():
            if name.endswith(ending) and hasattr(module, "base_layer"):
                module.apply = lambda x, bias=None, m=module: m.base_layer.quant_method.apply(
                    m.base_layer, x, bias
                )

    def arena_mend(self):
        manager = self.model_runner.lora_manager._adapter_manager
        manager.__dict__.pop("activate_adapter", None)
        for module in manager.modules.values():
            module.__dict__.pop("apply", None)


class Guard(vllm_inside.Guard):
    """`POST /sabotage/alias {"name": …}`: names loaded from now on lead to what that name leads to."""

    alias = None

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/sabotage/alias":
            type(self).alias = json.loads((await receive())["body"])["name"]
            await vllm_inside._answer(send, 200, {})
            return
        await super().__call__(scope, receive, send)
        if scope["type"] == "http" and scope["path"] == "/v1/load_lora_adapter" and self.alias:
            loaded = scope["app"].state.openai_serving_models.lora_requests
            newest = max(loaded, key=lambda name: loaded[name].lora_int_id)
            loaded[newest] = loaded[self.alias]
