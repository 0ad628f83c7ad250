"""Cellar, abi. The names of NVML's functions that bindings of CUDA 13.4 and older programs ask for.

Functions that are not in `nvml_calls.py` are NOT_SUPPORTED. A name that is not here is not
exported, and programs then assume an older library.
"""

from __future__ import annotations

from typing import Final

_AFTER: Final = {
    "ComputeInstance": """
        Destroy GetInfo_v2
    """,
    "DeviceClear": """
        AccountingPids CpuAffinity EccErrorCounts FieldValues
    """,
    "Device": """
        CreateGpuInstance CreateGpuInstanceWithPlacement DiscoverGpus IsMigDeviceHandle
        ModifyDrainState OnSameBoard PerfMetricsGetSamples_v1
        PowerSmoothingActivatePresetProfile PowerSmoothingSetState
        PowerSmoothingUpdatePresetProfileParam QueryDrainState ReadPRMCounters_v1
        ReadWritePRM_v1 RegisterEvents RemoveGpu RemoveGpu_v2 ResetGpuLockedClocks
        ResetMemoryLockedClocks ResetNvLinkErrorCounters ValidateInforom
        VgpuForceGspUnload
    """,
    "DeviceGet": """
        APIRestriction AccountingBufferSize AccountingMode AccountingPids AccountingStats
        AccountingStats_v2 ActiveVgpus AdaptiveClockInfoStatus AdaptiveTgpModeInfo_v1
        AddressingMode Architecture Attributes_v2 AutoBoostedClocksEnabled BAR1MemoryInfo
        BBXTimeData_v1 BankRemapperStatus_v1 BoardId BoardPartNumber Brand BridgeChipInfo
        BusType C2cModeInfoV Capabilities ClkMonStatus Clock ClockInfo ClockOffsets
        ComputeInstanceId ComputeMode ComputeRunningProcesses_v3
        ConfComputeGpuAttestationReport ConfComputeGpuCertificate ConfComputeMemSizeInfo
        ConfComputeProtectedMemoryUsage CoolerInfo Count_v2 CpuAffinity
        CpuAffinityWithinScope CreatableVgpus CudaComputeCapability CurrPcieLinkGeneration
        CurrPcieLinkWidth CurrentClockFreqs CurrentClocksEventReasons
        CurrentClocksThrottleReasons DecoderUtilization DefaultEccMode DetailedEccErrors
        DeviceHandleFromMigDeviceHandle DisplayActive DisplayMode DramEncryptionMode
        DriverModel DriverModel_v2 DynamicPstatesInfo EccMode EncoderCapacity
        EncoderSessions EncoderStats EncoderUtilization EnforcedPowerLimit FBCSessions
        FBCStats FanControlPolicy_v2 FanSpeed FanSpeedRPM FanSpeed_v2 FieldValues
        GpcClkMinMaxVfOffset GpcClkVfOffset GpuFabricInfoV GpuFabricInfo_v4
        GpuInstanceById GpuInstanceId GpuInstancePossiblePlacements_v2
        GpuInstanceProfileInfoByIdV GpuInstanceProfileInfoV GpuInstanceRemainingCapacity
        GpuInstances GpuMaxPcieLinkGeneration GpuOperationMode GraphicsRunningProcesses
        GraphicsRunningProcesses_v2 GraphicsRunningProcesses_v3 GridLicensableFeatures
        GridLicensableFeatures_v4 GspFirmwareMode GspFirmwareVersion HandleByIndex_v2
        HandleByPciBusId_v2 HandleBySerial HandleByUUID HandleByUUIDV HostVgpuMode
        Hostname_v1 Index InforomConfigurationChecksum InforomImageVersion InforomVersion
        IrqNum JpgUtilization LastBBXFlushTime MPSComputeRunningProcesses
        MPSComputeRunningProcesses_v3 MarginTemperature MaxClockInfo MaxCustomerBoostClock
        MaxMigDeviceCount MaxPcieLinkGeneration MaxPcieLinkWidth MemClkMinMaxVfOffset
        MemClkVfOffset MemoryAffinity MemoryBusWidth MemoryErrorCounter MemoryInfo_v2
        MemoryLimits_v1 MigDeviceHandleByIndex MigMode MinMaxClockOfPState MinMaxFanSpeed
        MinorNumber ModuleId MultiGpuBoard Name NumFans NumGpuCores NumaNodeId
        NvLinkCapability NvLinkErrorCounter NvLinkInfo NvLinkRemoteDeviceType
        NvLinkRemotePciInfo NvLinkRemotePciInfo_v2 NvLinkState NvLinkTelemetrySamples_v1
        NvLinkVersion NvlinkBwMode NvlinkSupportedBwModes OfaUtilization P2PStatus
        PciInfoExt PciInfo_v3 PcieLinkMaxSpeed PcieReplayCounter PcieSpeed PcieThroughput
        Pdi PerformanceModes PerformanceState PersistenceMode PgpuMetadataString
        PlatformInfo PowerManagementDefaultLimit PowerManagementLimit
        PowerManagementLimitConstraints PowerMizerMode_v1 PowerSource PowerState
        PowerUsage ProcessUtilization ProcessesUtilizationInfo RemappedRows
        RemappedRows_v2 RepairStatus RetiredPages RetiredPagesPendingStatus
        RetiredPages_v2 RowRemapperHistogram RunningProcessDetailList Samples Serial
        SramEccErrorStatus SramUniqueUncorrectedEccErrorCounts SupportedClocksEventReasons
        SupportedClocksThrottleReasons SupportedEventTypes SupportedGraphicsClocks
        SupportedMemoryClocks SupportedPerformanceStates SupportedVgpus TargetFanSpeed
        Temperature TemperatureThreshold TemperatureV ThermalSettings
        TopologyCommonAncestor TopologyNearestGpus TotalEccErrors TotalEnergyConsumption
        UUID UnrepairableMemoryFlag_v1 UtilizationRates VbiosVersion VgpuCapabilities
        VgpuHeterogeneousMode VgpuInstancesUtilizationInfo VgpuMetadata
        VgpuProcessUtilization VgpuProcessesUtilizationInfo VgpuSchedulerCapabilities
        VgpuSchedulerLog VgpuSchedulerLog_v2 VgpuSchedulerState VgpuSchedulerState_v2
        VgpuTypeCreatablePlacements VgpuTypeSupportedPlacements VgpuUtilization
        VirtualizationMode
    """,
    "DeviceSet": """
        APIRestriction AccountingMode AdaptiveTgpMode_v1 AutoBoostedClocksEnabled
        ClockOffsets ComputeMode ConfComputeUnprotectedMemSize CpuAffinity
        DefaultAutoBoostedClocksEnabled DefaultFanSpeed_v2 DramEncryptionMode DriverModel
        EccMode FanControlPolicy FanSpeed_v2 GpuLockedClocks GpuOperationMode Hostname_v1
        MemoryLimits_v1 MemoryLockedClocks MigMode NvLinkDeviceLowPowerThreshold
        NvlinkBwMode NvlinkBwModeAsync_v1 PersistenceMode PowerManagementLimit_v2
        PowerMizerMode_v1 RusdSettings_v1 TemperatureThreshold VgpuCapabilities
        VgpuHeterogeneousMode VgpuSchedulerState VgpuSchedulerState_v2 VirtualizationMode
    """,
    "": """
        ErrorString GetExcludedDeviceCount GetExcludedDeviceInfoByIndex
        GetVgpuCompatibility GetVgpuDriverCapabilities GetVgpuVersion InitWithFlags
        Init_v2 SetVgpuVersion Shutdown
    """,
    "EventSet": """
        Create Free GetContextCount_v1 GetContextData_v1 GetContextInfo_v1
        GetGpuOperationalEventContextLegacyXid_v1 RegisterGpuOperationalEvents_v1 Wait
        Wait_v2 Wait_v3
    """,
    "GpuInstance": """
        CreateComputeInstance CreateComputeInstanceWithPlacement Destroy GetActiveVgpus
        GetComputeInstanceById GetComputeInstancePossiblePlacements
        GetComputeInstanceProfileInfoV GetComputeInstanceRemainingCapacity
        GetComputeInstances GetCreatableVgpus GetInfo GetVgpuHeterogeneousMode
        GetVgpuSchedulerLog GetVgpuSchedulerLog_v2 GetVgpuSchedulerState
        GetVgpuSchedulerState_v2 GetVgpuTypeCreatablePlacements SetVgpuHeterogeneousMode
        SetVgpuSchedulerState SetVgpuSchedulerState_v2
    """,
    "System": """
        EventSetCreate EventSetFree EventSetWait GetCPER_v1 GetConfComputeCapabilities
        GetConfComputeGpusReadyState GetConfComputeKeyRotationThresholdInfo
        GetConfComputeSettings GetConfComputeState GetCudaDriverVersion
        GetCudaDriverVersion_v2 GetDriverBranch GetDriverVersion GetHicVersion
        GetNVMLVersion GetNvlinkBwMode GetProcessName GetTopologyGpuSet RegisterEvents
        SetConfComputeGpusReadyState SetConfComputeKeyRotationThresholdInfo
        SetNvlinkBwMode
    """,
    "Unit": """
        GetCount GetDevices GetFanSpeedInfo GetHandleByIndex GetLedState GetPsuInfo
        GetTemperature GetUnitInfo SetLedState
    """,
    "VgpuInstance": """
        ClearAccountingPids GetAccountingMode GetAccountingPids GetAccountingStats
        GetEccMode GetEncoderCapacity GetEncoderSessions GetEncoderStats GetFBCSessions
        GetFBCStats GetFbUsage GetFrameRateLimit GetGpuInstanceId GetGpuPciId
        GetLicenseInfo_v2 GetLicenseStatus GetMdevUUID GetMetadata GetPlacementId
        GetRuntimeStateSize GetType GetUUID GetVmDriverVersion GetVmID SetEncoderCapacity
    """,
    "VgpuType": """
        GetBAR1Info GetCapabilities GetClass GetDeviceID GetFbReservation
        GetFrameRateLimit GetFramebufferSize GetGpuInstanceProfileId GetGspHeapSize
        GetLicense GetMaxInstances GetMaxInstancesPerGpuInstance GetMaxInstancesPerVm
        GetName GetNumDisplayHeads GetResolution
    """,
}
"""The rest of each name, by the word after nvml."""

NAMES: Final = tuple(f"nvml{word}{rest}" for word, text in _AFTER.items() for rest in text.split())
