// The resources that store logs and telemetry, and the recipient of alerts.

@description('Name of the Application Insights component.')
param name string

@description('Name of the Log Analytics workspace.')
param workspaceName string

@description('Name of the action group.')
param actionGroupName string

@description('The Azure region.')
param location string

@description('Tags of the resources.')
param tags object

@description('Days that data is kept.')
param retentionDays int

@description('Gigabytes taken per day.')
param dailyCapGB int

@description('Who gets the alerts. Empty: nobody.')
param alertEmail string

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: retentionDays
    workspaceCapping: {
      dailyQuotaGb: dailyCapGB
    }
    features: {
      enableLogAccessUsingOnlyResourcePermissions: true
    }
  }
}

resource component 'Microsoft.Insights/components@2020-02-02' = {
  name: name
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    IngestionMode: 'LogAnalytics'
    // Nobody can send with the instrumentation key alone. The host and the handler send with a
    // token (APPLICATIONINSIGHTS_AUTHENTICATION_STRING).
    DisableLocalAuth: true
  }
}

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(alertEmail)) {
  name: actionGroupName
  location: 'global'
  tags: tags
  properties: {
    enabled: true
    groupShortName: 'tiney'
    emailReceivers: [
      {
        name: 'e-mail'
        emailAddress: alertEmail
        useCommonAlertSchema: true
      }
    ]
  }
}
