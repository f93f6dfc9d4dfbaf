// Y1: a function app on a Windows Consumption plan. Its processes are 32-bit, and so is its
// package.

@description('Name of the function app.')
param name string

@description('Name of the plan.')
param planName string

@description('Name of the storage account of the Functions host.')
param hostStorageName string

@description('The Azure region.')
param location string

@description('Tags of the resources.')
param tags object

@description('Resource ID of the identity.')
param identityId string

@description('Client ID of the identity.')
param clientId string

@description('The handler\'s settings.')
@secure()
param settings object

@description('BaseUrl, or empty.')
param baseUrl string

@description('Who may call. Empty: all.')
param accessRestrictions array

@description('What happens to all others: Allow or Deny.')
param accessOtherwise string

@description('The Application Insights component.')
param applicationInsightsName string

@description('How many instances there may be.')
@maxValue(200)
param maximumInstanceCount int

@description('How the host reaches its storage: key or identity.')
param hostStorageAccess string

@description('Name of the share with the site\'s content.')
param shareName string

@description('Which key of the host\'s storage the site uses: key1 or key2.')
param hostStorageKey string

@description('The package\'s URL, or 1 for one that is uploaded.')
param package string

resource hostAccount 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: hostStorageName
}

resource component 'Microsoft.Insights/components@2020-02-02' existing = {
  name: applicationInsightsName
}

// This has the only account key: the plan keeps its content on Azure Files, which accepts no
// identity.
var hostConnection = 'DefaultEndpointsProtocol=https;AccountName=${hostStorageName};AccountKey=${hostAccount.listKeys().keys[hostStorageKey == 'key1' ? 0 : 1].value};EndpointSuffix=${environment().suffixes.storage}'

// With the identity, hosts on this plan were seen to respond 500 to every request until a restart
// (Azure/azure-functions-host#10900). The plan needs the key anyway, so the host uses it too.
var hostStorageSettings = hostStorageAccess == 'key'
  ? {
      AzureWebJobsStorage: hostConnection
    }
  : {
      AzureWebJobsStorage__accountName: hostStorageName
      AzureWebJobsStorage__credential: 'managedidentity'
      AzureWebJobsStorage__clientId: clientId
    }

var allSettings = union(settings, hostStorageSettings, {
  FUNCTIONS_EXTENSION_VERSION: '~4'
  FUNCTIONS_WORKER_RUNTIME: 'custom'
  WEBSITE_CONTENTAZUREFILECONNECTIONSTRING: hostConnection
  WEBSITE_CONTENTSHARE: shareName
  // A deployed zip is mounted, not unpacked over the files of the running version: Windows would
  // not replace a running handler.exe. A mounted zip also starts faster.
  WEBSITE_RUN_FROM_PACKAGE: package
})

// The plan needs some of the settings when it creates the site, and settings given here replace all
// settings of the site. So all of them are given. The site runs with them until site-settings.bicep
// sets them again, with the host name that Azure gave the site.
var settingsAtCreation = union(allSettings, {
  BaseUrl: empty(baseUrl) ? 'https://${name}.azurewebsites.net' : baseUrl
  APPLICATIONINSIGHTS_CONNECTION_STRING: component.properties.ConnectionString
})

resource servicePlan 'Microsoft.Web/serverfarms@2025-03-01' = {
  name: planName
  location: location
  tags: tags
  sku: {
    name: 'Y1'
    tier: 'Dynamic'
  }
  properties: {}
}

// There is no health check: on function apps, it needs a Premium or Dedicated plan.
resource site 'Microsoft.Web/sites@2025-03-01' = {
  name: name
  location: location
  tags: tags
  kind: 'functionapp'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: servicePlan.id
    httpsOnly: true
    clientAffinityEnabled: false
    siteConfig: {
      appSettings: map(items(settingsAtCreation), setting => {
        name: setting.key
        value: setting.value
      })
      // This is for the Functions host itself. On Windows, version 4 needs it for every language of
      // the functions.
      netFrameworkVersion: 'v8.0'
      use32BitWorkerProcess: true
      functionAppScaleLimit: maximumInstanceCount
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
      ftpsState: 'Disabled'
      http20Enabled: true
      ipSecurityRestrictions: accessRestrictions
      ipSecurityRestrictionsDefaultAction: accessOtherwise
      scmIpSecurityRestrictionsUseMain: false
    }
  }
}

module siteSettings 'site-settings.bicep' = {
  name: '${name}-settings'
  params: {
    siteName: site.name
    settings: allSettings
    baseUrl: baseUrl
    applicationInsightsName: applicationInsightsName
  }
}

@description('Resource ID of the function app.')
output siteId string = site.id

@description('The host name that Azure gave the site.')
output defaultHostName string = siteSettings.outputs.defaultHostName

@description('What the TXT record asuid.DOMAIN of a domain has to have.')
output domainVerification string = siteSettings.outputs.domainVerification

@description('BaseUrl, as it was set.')
output baseUrl string = siteSettings.outputs.baseUrl
