"""Converts public traces to recordings: one file per trace, all with the interface `Importer`."""

from flyball_streams.importers.alibaba_gentd26 import AlibabaGentd26 as AlibabaGentd26
from flyball_streams.importers.azure_llm_2023 import AzureLlm2023 as AzureLlm2023
from flyball_streams.importers.base import Importer
from flyball_streams.importers.carbon_electricitymaps import CarbonElectricityMaps
from flyball_streams.importers.servegen import ServeGen

IMPORTERS: dict[str, Importer] = {
    importer.name: importer for importer in (AlibabaGentd26(), AzureLlm2023(), CarbonElectricityMaps(), ServeGen())
}
"""Every importer with its default settings, by name."""
